"""Training: configuration, the loop, state that survives anything, metrics, and sampling."""
