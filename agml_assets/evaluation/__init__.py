"""Models on frozen features over datasets: backbones, probes, tasks, scores with intervals."""
