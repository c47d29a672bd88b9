"""A book that runs, and the package it builds: how a language model is trained, gradient by gradient."""

__version__ = "0.1.0"
