"""Where code of agents runs: confined to its workspace, without network, within limits."""
