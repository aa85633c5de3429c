"""What all recipes have in common: flags, a run's folder, its training."""
