"""Models: each a graph builder and an initialiser, nothing more."""
