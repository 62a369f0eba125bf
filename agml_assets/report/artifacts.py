"""The artifacts of this room: one dataset's report, for people and for tools."""

from agml_assets.lineage import Artifact

CONFIG_USED = Artifact("config_used", ".json")
RESULT = Artifact("result", ".json")
ISSUES = Artifact("report/issues", ".parquet")
CROISSANT = Artifact("report/croissant", ".json")
CARD = Artifact("report/card", ".html")

ARTIFACTS = (CONFIG_USED, RESULT, ISSUES, CROISSANT, CARD)
"""All read whatever is current, so their inputs are not fixed. In the order of writing."""
