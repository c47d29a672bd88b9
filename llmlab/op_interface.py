"""What an op's functions read and make, as their signatures say.

An op is a module with a `forward` and a `backward` function, and the names in their signatures are all that
a graph knows about it:

    forward(x, weight, bias, eps=1e-5, *, y=None, mean=None, rstd=None)
    backward(dy, x, weight, mean, rstd, *, dx=None, dweight=None, dbias=None)

Names before the star are what a function reads, names after it are what it makes. `backward` reads
arguments and results of `forward` and `d` + a result; it makes `d` + an argument. So what must be alive for
a gradient stands in the signature, and nothing is hidden in a context object.

An op module may say more, all of it optional:

    IN_PLACE = {"dx": ("dy",)}         a result that may be written over an argument
    SHARED = {"dbranch": "dx"}         results that are equal: one buffer serves both
    recompute(x, weight, ..., *, y)    some results again, from arguments and results that were kept
    forward_backward(logits, ...)      forward and backward in one pass (only for the op of the loss)
    EVALUATION = {"p": 0.0}            attributes that take the place of the node's when nothing is learned
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

__all__ = ["Function", "function"]


@dataclass(frozen=True)
class Function:
    """One function of an op, as its signature tells: what it reads, what it makes.

    `required` are the names without a default, `nullable` those whose annotation allows None.
    """

    call: Any
    reads: tuple[str, ...]
    required: frozenset[str]
    nullable: frozenset[str]
    makes: tuple[str, ...]
    defaults: Mapping[str, Any]


@functools.cache
def function(op: ModuleType, name: str) -> Function | None:
    """The function `name` of an op, or None if it has none.

    >>> from llmlab.ops import layernorm
    >>> function(layernorm, "backward").makes
    ('dx', 'dweight', 'dbias')
    """
    call = getattr(op, name, None)
    if call is None:
        return None
    parameters = inspect.signature(call).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return Function(
        call,
        reads=tuple(p.name for p in positional),
        required=frozenset(p.name for p in positional if p.default is p.empty),
        nullable=frozenset(p.name for p in positional if "None" in str(p.annotation)),
        makes=tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        defaults={p.name: p.default for p in positional if p.default is not p.empty},
    )
