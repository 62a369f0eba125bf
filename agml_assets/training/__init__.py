"""Leak-safe splits, the reference model, its dynamics and predictions, out-of-fold probabilities."""
