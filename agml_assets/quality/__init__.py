"""Metrics, one module each, and the score made from them."""
