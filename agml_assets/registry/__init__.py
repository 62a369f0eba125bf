"""What can be benchmarked: datasets, as entries of a YAML file, checked when they are read."""
