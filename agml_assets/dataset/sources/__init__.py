"""Where images come from: one module per kind of source, all giving the same stream of undecoded examples.

A new kind of source is one class with `info` and `examples`, and a line in `open_source`.
"""

from agml_assets.dataset.sources.base import Example, Source, SourceInfo
from agml_assets.registry.datasets import DatasetEntry

__all__ = ["Example", "Source", "SourceInfo", "open_source"]


def open_source(entry: DatasetEntry) -> Source:
    """Return the source of a registry entry; opening it may download, and raises `UserError` if it cannot."""
    if entry.source == "hf":
        from agml_assets.dataset.sources.hf import HuggingFaceSource

        return HuggingFaceSource(entry)
    if entry.source == "agml":
        from agml_assets.dataset.sources.agml import open_agml

        return open_agml(entry)
    if entry.source == "folder":
        from agml_assets.dataset.sources.folder import FolderSource

        return FolderSource(entry)
    from agml_assets.dataset.sources.sample import SampleSource

    return SampleSource()
