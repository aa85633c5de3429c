"""Thin recipes: published experiments on any number of replicas."""
