"""The artifacts of this room: one dataset's report."""

from agml_assets.lineage import Artifact

RESULT = Artifact("result", ".json")
CONFIG_USED = Artifact("config_used", ".json")
"""Both read whatever is current, so their inputs are not fixed."""
