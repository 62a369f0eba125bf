"""Exact mode: probes at their optimum, penalties chosen inside the training part, intervals, controls, ranking."""
