"""The scaling report; what all commands share: start, children, plots."""
