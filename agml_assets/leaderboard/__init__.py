"""Run records in, the site's manifests and a board with intervals and shared datasets out."""
