"""Where tasks come from: folders in the old benchmark's format, registered datasets, scikit-learn's digits."""
