"""Starter code of the package's own tasks: scripts that are copied to a workspace as `train.py`; nothing imports them."""
