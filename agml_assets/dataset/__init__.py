"""A source becomes image index, pixel hashes, pixels and splits."""
