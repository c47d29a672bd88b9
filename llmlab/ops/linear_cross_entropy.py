"""The head of a language model and its cross-entropy, in chunks of rows: the full logits never exist.

    logits = x weightᵀ        loss = cross_entropy(logits, targets)

A row of logits depends on one row of x, and the loss is a sum over rows, divided by a number that the
targets alone decide. So rows can be taken a chunk i at a time, in a workspace that serves one chunk after
the other; the gradient goes back through the chunk while its logits are there:

    logits  = x_i weightᵀ
    dlogits = w_i (softmax(logits) - one_hot(targets_i))        over the logits
    dweight += dlogitsᵀ x_i
    dx_i    = dlogits weight

Nothing is computed twice. Against the two ops one after the other, memory falls from N·V to the workspace,
and dweight is read and written once for each chunk. Known as fused linear cross-entropy: Liger Kernel (Hsu
et al. 2024, arXiv:2410.10989).
"""

from __future__ import annotations

from llmlab.arrays import Array, row_chunks, scratch
from llmlab.kernels import accelerated
from llmlab.ops import cross_entropy, linear
from llmlab.ops._precision import gradient, mixed_precision, result
from llmlab.ops.check import checked

IN_PLACE = {"dx": ("x",)}
"""Results that may be written over an argument, if nobody needs it any more."""

_ROWS = 512
"""Of a workspace that nobody gave: enough for a CPU's products to run at full speed."""


def _workspace(logits: Array | None, x: Array, weight: Array, targets: Array) -> Array:
    logits = result(logits, (min(targets.size, _ROWS), len(weight)), x)
    logits[targets.size:] = 0  # left as they are, casting them to 16 bits at the end might warn
    return logits


def _check(weight: Array, targets: Array, logits: Array | None = None, **others) -> None:
    if logits is not None and len(logits) == 0 < targets.size:
        raise ValueError("logits has 0 rows, needs at least 1: as many are computed at a time")
    cross_entropy.check_targets(len(weight), targets, **others)


@checked(_check, x="*N C", weight="V C", targets="integer *N", logits="R V")
@accelerated("linear_cross_entropy", "forward")
@mixed_precision("logits")
def forward(
    x: Array, weight: Array, targets: Array, ignore_index: int = -100, vocabulary: int | None = None,
    reduction: str = "mean", *, loss: Array | None = None, logits: Array | None = None,
) -> tuple[Array, Array]:
    """loss = cross_entropy(x weightᵀ, targets).

    x (..., C), weight (V, C), targets (...,) integers in [0, V) or `ignore_index`; columns of the logits
    from `vocabulary` on are padding; `reduction` is "mean", "sum" or "none". `logits` (rows, V), of x's
    dtype, is the workspace: so many rows are computed at a time. None: a new one. Returns loss, in the
    accumulation dtype, a scalar array or (...,) for reduction "none"; and the workspace, whose content then
    means nothing. Raises TypeError and ValueError that name the argument.

    >>> import numpy as np
    >>> x, weight, targets = np.ones((3, 2)), np.zeros((4, 2)), np.array([3, 0, -100])
    >>> loss, logits = forward(x, weight, targets, logits=np.empty((1, 4)))   # a row at a time
    >>> round(float(loss), 4)   # log 4
    1.3863
    """
    logits = _workspace(logits, x, weight, targets)
    x, losses = x.reshape(-1, x.shape[-1]), scratch((targets.size,), logits.dtype, x)
    for rows, z in row_chunks(len(x), logits):
        # logits = x_i weightᵀ
        linear.forward.text(x[rows], weight, y=z)
        cross_entropy.forward.text(
            z, targets.reshape(-1)[rows], ignore_index, vocabulary, "none", loss=losses[rows])
    return cross_entropy.reduce(losses.reshape(targets.shape), targets, ignore_index, reduction, loss), logits


@checked(_check, x="*N C", weight="V C", targets="integer *N", dx="*N C", dweight="sum V C", logits="R V")
@accelerated("linear_cross_entropy", "backward")
@mixed_precision("dx", "logits")
def backward(
    dloss: Array | float, x: Array, weight: Array, targets: Array, ignore_index: int = -100,
    vocabulary: int | None = None, reduction: str = "mean",
    *, dx: Array | None = None, dweight: Array | None = None, logits: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of the loss; the logits are computed again, chunk by chunk.

    dloss a scalar (or (...,) for reduction "none"), the rest as in `forward`; returns dx like x, dweight
    (V, C) in the accumulation dtype, and the workspace. `dweight` given is added to; `dx` may be `x` itself.

    >>> import numpy as np
    >>> dx, dweight, _ = backward(1.0, np.ones((1, 1)), np.zeros((2, 1)), np.array([0]))
    >>> dx.tolist(), dweight.tolist()
    ([[0.0]], [[-0.5], [0.5]])
    """
    return _by_chunks(dloss, x, weight, targets, ignore_index, vocabulary, reduction, dx, dweight, logits)[1:]


@checked(_check, x="*N C", weight="V C", targets="integer *N", dx="*N C", dweight="sum V C", logits="R V")
@accelerated("linear_cross_entropy", "forward_backward")
@mixed_precision("dx", "logits")
def forward_backward(
    x: Array, weight: Array, targets: Array, dloss: Array | float = 1.0, ignore_index: int = -100,
    vocabulary: int | None = None, reduction: str = "mean",
    *, loss: Array | None = None, dx: Array | None = None, dweight: Array | None = None,
    logits: Array | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Loss and gradients together: every product is computed once.

    Arguments and results as in `forward` and `backward`.

    >>> import numpy as np
    >>> loss, dx, dweight, _ = forward_backward(np.ones((1, 1)), np.zeros((2, 1)), np.array([0]))
    >>> round(float(loss), 4), dweight.tolist()
    (0.6931, [[-0.5], [0.5]])
    """
    losses, dx, dweight, logits = _by_chunks(
        dloss, x, weight, targets, ignore_index, vocabulary, reduction, dx, dweight, logits)
    return cross_entropy.reduce(losses, targets, ignore_index, reduction, loss), dx, dweight, logits


def _by_chunks(
    dloss: Array | float, x: Array, weight: Array, targets: Array, ignore_index: int, vocabulary: int | None,
    reduction: str, dx: Array | None, dweight: Array | None, logits: Array | None,
) -> tuple[Array, Array, Array, Array]:
    """The losses of the rows, dx, dweight and the workspace."""
    logits = _workspace(logits, x, weight, targets)
    dx, dweight = result(dx, x.shape, x), gradient(dweight, weight)
    losses = scratch(targets.shape, logits.dtype, x)
    # w_n = dloss / #valid: of all rows, whatever chunk they are in
    w = cross_entropy.row_weights(dloss, targets, ignore_index, reduction, logits.dtype).reshape(-1)
    x_rows, dx_rows = x.reshape(-1, x.shape[-1]), dx.reshape(-1, x.shape[-1])
    for rows, z in row_chunks(len(x_rows), logits):
        # logits = x_i weightᵀ
        linear.forward.text(x_rows[rows], weight, y=z)
        # dlogits = w_i (softmax(logits) - one_hot(targets_i))
        cross_entropy.forward_backward.text(
            z, targets.reshape(-1)[rows], w[rows], ignore_index, vocabulary, "none",
            loss=losses.reshape(-1)[rows], dlogits=z)
        # dweight += dlogitsᵀ x_i, dx_i = dlogits weight
        linear.backward.text(z, x_rows[rows], weight, dx=dx_rows[rows], dweight=dweight)
    return losses, dx, dweight, logits
