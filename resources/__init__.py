"""Thin Dagster resources around the plain classes of `agml_assets`."""
