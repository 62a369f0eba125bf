"""The artifacts of a submission: their files and versions. How they are made is in `steps`."""

FILES = {"submission": "submission.parquet", "task_scores": "task_scores.json", "summary": "summary.json"}
"""In order, each made from the one before."""

CODE_VERSIONS = {"submission": "1", "task_scores": "2", "summary": "2"}
"""Raised whenever a step would make other content from the same inputs."""
