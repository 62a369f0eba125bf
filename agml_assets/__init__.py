"""How good is an image dataset? One Dagster asset graph that answers with numbers.

The package is split into rooms, one per stage, in the order in which data flows. Importing
it loads neither Dagster nor torch.
"""
