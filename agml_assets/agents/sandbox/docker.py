"""A trial's sandbox as a Docker compose file: the same walls as bubblewrap's, made by a container.

The image is built from `docker/agents/Dockerfile`; a task that needs more has an image of its own.
"""

from pathlib import Path
from typing import Any

import yaml

from agml_assets.agents.sandbox.bubblewrap import BubblewrapConfig
from agml_assets.agents.sandbox.confinement import WORKSPACE

IMAGE = "agml-assets-agents"


def compose_of(config: BubblewrapConfig, image: str = IMAGE) -> dict[str, Any]:
    """Return the compose file of a workspace: no network, no capability, nothing writable but the workspace."""
    limits = config.limits
    volumes: list[dict[str, Any]] = [{"type": "bind", "source": str(config.workspace), "target": str(WORKSPACE)}]
    volumes += [
        {"type": "bind", "source": str(path), "target": str(WORKSPACE / place), "read_only": True}
        for place, path in config.read_only
    ]
    service: dict[str, Any] = {
        "image": image,
        "command": "tail -f /dev/null",
        "init": True,
        "network_mode": "none",
        "working_dir": str(WORKSPACE),
        "user": f"{config.user}:{config.user}",
        "read_only": True,
        "tmpfs": ["/tmp:size=1g,mode=1777"],  # noqa: S108
        "volumes": volumes,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": f"{limits.memory_mb}m",
        "memswap_limit": f"{limits.memory_mb}m",
        "pids_limit": limits.processes,
        "ulimits": {"fsize": limits.file_mb << 20, "core": 0},
    }
    if config.gpu is not None:
        device = {"driver": "nvidia", "device_ids": [str(config.gpu)], "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return {"services": {"default": service}}


def write_compose(config: BubblewrapConfig, file: Path) -> Path:
    """Write the compose file of a workspace and return its path."""
    file.write_text(yaml.safe_dump(compose_of(config), sort_keys=False), encoding="utf-8")
    return file
