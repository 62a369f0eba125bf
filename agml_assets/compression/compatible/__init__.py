"""NeuCo-Bench's evaluation as published: same files, splits, probes, scores and ranks, its crashes apart."""
