"""What Inspect finds of this package by its entry point: its types of sandboxes."""

from agml_assets.agents.sandbox.bubblewrap import BubblewrapEnvironment, UnconfinedEnvironment

__all__ = ["BubblewrapEnvironment", "UnconfinedEnvironment"]
