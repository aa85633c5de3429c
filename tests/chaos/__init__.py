"""Faults at random moments: the job ends with the weights of a quiet run."""
