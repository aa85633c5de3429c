"""Where operations run: on a replica, by its number, or on the host."""

HOST = -1
"""The place of what runs on the host: sizes, strings, tables."""
