"""A book that runs, and the package it builds: how a language model is trained, gradient by gradient.

>>> import llmlab
>>> llmlab.gpt2.Config(C=64).D
16
"""

from importlib import import_module

__version__ = "0.1.0"

# What most programs need, under short names; each is imported when it is first asked for.
HOMES = {
    "AdamW": "llmlab.optim",
    "Engine": "llmlab.engine",
    "Graph": "llmlab.graph",
    "Loader": "llmlab.train.loader",
    "Parameters": "llmlab.parameters",
    "dataset": "llmlab.data",
    "gpt2": "llmlab.models",
    "gradcheck": "llmlab",
    "kernels": "llmlab",
    "ops": "llmlab",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module 'llmlab' has no attribute {name!r}")
    home = HOMES[name]
    if name[0].isupper():
        return getattr(import_module(home), name)
    return import_module(f"{home}.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
