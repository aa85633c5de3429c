"""Models that people train, in few units and on made-up rows."""
