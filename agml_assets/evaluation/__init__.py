"""Models on frozen features: tasks, backbones, probes, metrics, reports."""
