"""Models on frozen features over datasets: probes, tasks, scores with intervals."""
