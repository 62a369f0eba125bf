"""What Inspect finds of this package by its entry point: types of sandboxes, so that its own commands know them."""

from agml_assets.agents.sandbox.bubblewrap import BubblewrapEnvironment, UnconfinedEnvironment

__all__ = ["BubblewrapEnvironment", "UnconfinedEnvironment"]
