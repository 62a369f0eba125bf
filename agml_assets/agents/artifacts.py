"""The artifacts of an agent on a task: their files and versions. How they are made is in `steps`."""

FILES = {"run": "run.eval", "workspaces": "workspaces.zip", "evaluation": "evaluation.json"}
"""`workspaces` is made with `run`: the files behind its steps."""

CODE_VERSIONS = {"run": "2", "workspaces": "1", "evaluation": "2"}
"""Raised whenever a step would make other content from the same inputs."""

LEADERBOARD = "agents/leaderboard.json"
