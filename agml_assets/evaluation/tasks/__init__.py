"""Published evaluation tasks, read from their real layout on disk: one module each, one shape for all.

What a task is called, where it lies and how it is probed is in the task registry. No image is decoded here.
"""

from agml_assets.evaluation.tasks.base import TaskData
from agml_assets.evaluation.tasks.download import Downloaded, download_task
from agml_assets.evaluation.tasks.images import ImageOpener
from agml_assets.evaluation.tasks.reading import READERS, read_task

__all__ = ["READERS", "Downloaded", "ImageOpener", "TaskData", "download_task", "read_task"]
