"""Rows in runs, and sums along rows and columns by the matrix-product routines, much faster than `sum`."""

from __future__ import annotations

import math
from collections.abc import Callable

from llmlab.arrays import Array, is_cupy, namespace, scratch_frame

__all__ = ["by_rows", "column_sum", "row_dot", "row_sum"]

_BLOCK = 1 << 18  # elements of a run: few enough for the cache, many enough to forget the calls


def by_rows(function: Callable[..., None], *arrays: Array) -> None:
    """Call `function` with one run of rows of the arrays after another, so that its temporaries stay small.

    The arrays have N rows each; the first has the most columns. On a GPU there is one run.

    >>> import numpy as np
    >>> by_rows(lambda x, y: np.add(x, 1, out=y), np.zeros((2, 1)), out := np.empty((2, 1)))
    >>> out.tolist()
    [[1.0], [1.0]]
    """
    N = len(arrays[0])
    step = N if is_cupy(arrays[0]) else _BLOCK // max(1, math.prod(arrays[0].shape[1:]))
    step = max(1, step)
    for start in range(0, N, step):
        with scratch_frame():
            function(*(a[start:start + step] for a in arrays))


def row_sum(x: Array) -> Array:
    """Σ_c x[..., c].

    >>> import numpy as np
    >>> row_sum(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [3.0, 7.0]
    """
    return x @ namespace(x).ones(x.shape[-1], x.dtype)


def row_dot(a: Array, b: Array) -> Array:
    """Σ_c a[..., c] · b[..., c].

    >>> import numpy as np
    >>> row_dot(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])).tolist()
    [11.0]
    """
    xp = namespace(a)
    return xp.vecdot(a, b) if hasattr(xp, "vecdot") else (a * b).sum(-1)


def column_sum(x: Array) -> Array:
    """Σ_n x[n, c] over all leading axes.

    >>> import numpy as np
    >>> column_sum(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [4.0, 6.0]
    """
    xp = namespace(x)
    rows = x.reshape(-1, x.shape[-1])
    # in two steps of about √N terms each, because the rounding errors of one long sum pile up
    N, C = rows.shape
    step = 1
    while N and N % (2 * step) == 0 and 4 * step * step <= N:
        step *= 2
    partial = xp.ones(N // step, x.dtype) @ rows.reshape(N // step, step * C)
    return xp.ones(step, x.dtype) @ partial.reshape(step, C)
