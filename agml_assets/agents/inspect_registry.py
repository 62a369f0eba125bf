"""What Inspect finds of this package by its entry point: its types of sandboxes."""

from agml_assets.agents.sandbox.environments import (
    BubblewrapEnvironment,
    ContainerEnvironment,
    UnconfinedEnvironment,
)

__all__ = ["BubblewrapEnvironment", "ContainerEnvironment", "UnconfinedEnvironment"]
