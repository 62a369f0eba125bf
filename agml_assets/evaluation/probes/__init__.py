"""Light classifiers fitted on frozen features, scikit-learn style; `table.py` lists them by name."""
