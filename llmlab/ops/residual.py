"""The residual connection: y = x + branch. The gradient passes to both sides unchanged."""

from __future__ import annotations

from llmlab.arrays import Array, namespace
from llmlab.kernels import accelerated
from llmlab.ops._precision import mixed_precision, result
from llmlab.ops.check import checked

IN_PLACE = {"y": ("branch", "x"), "dx": ("dy",), "dbranch": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""

SHARED = {"dbranch": "dx"}
"""Results that are equal, so that one buffer may serve both."""


@checked(x="*N", branch="*N", y="*N")
@accelerated("residual", "forward")
@mixed_precision("y")
def forward(x: Array, branch: Array, *, y: Array | None = None) -> Array:
    """y = x + branch, all of one shape. `y` may be `x` or `branch` itself.

    >>> import numpy as np
    >>> forward(np.array([1.0]), np.array([2.0])).tolist()
    [3.0]
    """
    return namespace(x).add(x, branch, out=result(y, x.shape, x))


@checked(dy="*N", dx="*N", dbranch="*N")
@accelerated("residual", "backward")
@mixed_precision("dx", "dbranch")
def backward(dy: Array, *, dx: Array | None = None, dbranch: Array | None = None) -> tuple[Array, Array]:
    """dx = dy and dbranch = dy. Either may be `dy` itself, and then costs nothing.

    >>> import numpy as np
    >>> [d.tolist() for d in backward(np.array([3.0]))]
    [[3.0], [3.0]]
    """
    dx = result(dx, dy.shape, dy)
    dbranch = result(dbranch, dy.shape, dy)
    for d in (dx, dbranch):
        if d is not dy:
            d[...] = dy
    return dx, dbranch
