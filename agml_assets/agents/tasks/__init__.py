"""Where tasks come from: folders of the old benchmark's format, registered datasets, scikit-learn's digits."""
