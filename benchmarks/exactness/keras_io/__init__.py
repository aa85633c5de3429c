"""Programs after keras.io's examples, and after public bug reports."""
