"""The report of one dataset."""
