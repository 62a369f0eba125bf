"""Starter code of the package's own tasks: scripts that become a workspace's `train.py`; nothing imports them."""
