"""Vectors, exact neighbours, duplicate groups and UMAP."""
