"""Models on frozen features over datasets and tasks: features, predictions of probes, scores, comparisons."""
