"""What all commands share: how they start and fail, children, plots."""
