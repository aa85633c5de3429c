"""Traces, programs and what runs them."""
