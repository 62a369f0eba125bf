"""What can be benchmarked: registries in YAML, checked when they are read. Nothing here opens a dataset."""
