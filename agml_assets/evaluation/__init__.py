"""Models on frozen features over datasets: scores with intervals, comparisons, and what they add up to."""
