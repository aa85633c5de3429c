"""Shared parts of the recipes: flags, the folder of a run, its training."""
