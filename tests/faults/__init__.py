"""Faults that hang or break a training: each is named rightly, in time."""
