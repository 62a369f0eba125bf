"""Fixed-size embeddings over tasks: what a compressed embedding keeps."""
