"""The one-device step: its graph, symbolic sizes and order of effects."""
