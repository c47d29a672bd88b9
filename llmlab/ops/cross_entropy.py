"""Cross-entropy of softmax(logits) against integer targets.

    lse_n = log Σ_v exp(logits_nv)      loss_n = lse_n - logits_n,target      loss = Σ_valid loss_n / #valid

The derivative of lse by a logit is that logit's softmax, so

    dlogits_nv = w_n (exp(logits_nv - lse_n) - [v = target_n])      w_n = dloss / #valid

Rows whose target is `ignore_index` are not valid: they count for nothing and their dlogits are exactly 0.
With no valid row at all the loss is 0. Columns from `vocabulary` on are padding, as if they were not there.
"""

from __future__ import annotations

from numbers import Real

from llmlab.arrays import Array, namespace, scratch
from llmlab.kernels import accelerated
from llmlab.ops._precision import mixed_precision, result
from llmlab.ops._rows import by_rows, row_sum
from llmlab.ops.check import checked, ids, integer

IN_PLACE = {"dlogits": ("logits",)}
"""Results that may be written over an argument, if nobody needs it any more."""

_REDUCTIONS = ("mean", "sum", "none")


def check_targets(
    V: int, targets: Array, dloss: Array | float = 1.0, ignore_index: int = -100,
    vocabulary: int | None = None, reduction: str = "mean", loss: Array | None = None, **_,
) -> None:
    """Refuse targets, attributes, dloss and loss that fit no logits of V columns."""
    if vocabulary is not None:
        integer("vocabulary", vocabulary, 1, V)
    integer("ignore_index", ignore_index)
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}, needs to be one of {', '.join(_REDUCTIONS)}")
    shape = targets.shape if reduction == "none" else ()
    if loss is not None and getattr(loss, "shape", None) != shape:
        raise ValueError(f"loss has shape {getattr(loss, 'shape', None)}, needs {shape} for {reduction!r}")
    if not hasattr(dloss, "shape"):
        if not isinstance(dloss, Real):
            raise TypeError(f"dloss is {dloss!r}, needs to be a number or an array")
    elif dloss.shape not in ((), (1,), shape):
        raise ValueError(f"dloss has shape {dloss.shape}, needs to be one number"
                         f"{f' or {shape} as targets' if shape else ''} for reduction {reduction!r}")
    ids("targets", targets, vocabulary or V, allowed=ignore_index)


def _check(logits: Array, **others) -> None:
    check_targets(logits.shape[-1], **others)


@checked(_check, logits="*N V", targets="integer *N", lse="sum *N")
@accelerated("cross_entropy", "forward")
@mixed_precision()
def forward(
    logits: Array, targets: Array, ignore_index: int = -100, vocabulary: int | None = None,
    reduction: str = "mean", *, loss: Array | None = None, lse: Array | None = None,
) -> tuple[Array, Array]:
    """loss = mean over valid rows of (lse - logits[target]).

    logits (..., V), targets (...,) integers in [0, V) or `ignore_index`; returns loss, a scalar array (or
    (...,) for reduction "none"), and lse (...,), both in the accumulation dtype. logits are left as they
    are.

    >>> import numpy as np
    >>> loss, lse = forward(np.zeros((2, 4)), np.array([3, -100]))
    >>> round(float(loss), 4), lse.round(4).tolist()   # log 4
    (1.3863, [1.3863, 1.3863])
    """
    z = logits[..., :vocabulary]
    lse = result(lse, targets.shape, logits)

    def rows(z: Array, lse: Array) -> None:
        # lse = m + log Σ exp(z - m)
        m, _, l = _exponentials(z, out=scratch(z.shape, z.dtype, z))
        lse[...] = m + namespace(z).log(l)

    by_rows(rows, z.reshape(-1, z.shape[-1]), lse.reshape(-1))
    losses = lse - _at_target(z, targets, ignore_index)
    return reduce(losses, targets, ignore_index, reduction, loss), lse


@checked(_check, logits="*N V", targets="integer *N", lse="sum *N", dlogits="*N V")
@accelerated("cross_entropy", "backward")
@mixed_precision("dlogits")
def backward(
    dloss: Array | float, logits: Array, targets: Array, lse: Array, ignore_index: int = -100,
    vocabulary: int | None = None, reduction: str = "mean", *, dlogits: Array | None = None,
) -> Array:
    """dlogits = w (exp(logits - lse) - one_hot(target)), w = dloss / #valid.

    dloss a scalar (or (...,) for reduction "none"), logits (..., V), lse (...,) as forward returned it;
    returns dlogits like logits. `dlogits` may be `logits` itself, and only then are the logits overwritten.

    >>> import numpy as np
    >>> logits = np.zeros((1, 3))
    >>> loss, lse = forward(logits, np.array([0]))
    >>> backward(1.0, logits, np.array([0]), lse).round(4).tolist()
    [[-0.6667, 0.3333, 0.3333]]
    """
    xp = namespace(logits)
    dlogits = result(dlogits, logits.shape, logits)
    z, dz = logits[..., :vocabulary], dlogits[..., :vocabulary]
    # p = exp(z - lse), which sums to 1 but for the rounding of lse
    p = xp.exp(xp.subtract(z, lse[..., None], out=dz), out=dz)
    # dz = w (p - one_hot(target))
    w = row_weights(dloss, targets, ignore_index, reduction, lse.dtype)
    p *= (w / row_sum(p))[..., None]
    _subtract_targets(dlogits, dz.shape[-1], w, targets, ignore_index)
    return dlogits


@checked(_check, logits="*N V", targets="integer *N", dlogits="*N V")
@accelerated("cross_entropy", "forward_backward")
@mixed_precision("dlogits")
def forward_backward(
    logits: Array, targets: Array, dloss: Array | float = 1.0, ignore_index: int = -100,
    vocabulary: int | None = None, reduction: str = "mean",
    *, loss: Array | None = None, dlogits: Array | None = None,
) -> tuple[Array, Array]:
    """Loss and gradient together: the exponentials are taken once, logits read once and dlogits written once.

    Arguments and results as in `forward` and `backward`; `dlogits` may be `logits` itself.

    >>> import numpy as np
    >>> loss, dlogits = forward_backward(np.zeros((1, 2)), np.array([1]))
    >>> round(float(loss), 4), dlogits.tolist()
    (0.6931, [[0.5, -0.5]])
    """
    dlogits = result(dlogits, logits.shape, logits)
    z, dz = logits[..., :vocabulary], dlogits[..., :vocabulary]
    at_target = _at_target(z, targets, ignore_index)  # before dlogits may overwrite the logits
    # p = exp(z - m) / l,  lse = m + log l
    m, p, l = _exponentials(z, out=dz)
    loss = reduce(m + namespace(z).log(l) - at_target, targets, ignore_index, reduction, loss)
    # dz = w (p - one_hot(target))
    w = row_weights(dloss, targets, ignore_index, reduction, l.dtype)
    p *= (w / l)[..., None]
    _subtract_targets(dlogits, dz.shape[-1], w, targets, ignore_index)
    return loss, dlogits


def _exponentials(z: Array, out: Array) -> tuple[Array, Array, Array]:
    """m = max z, exp(z - m) and l = Σ exp(z - m), of each row."""
    xp = namespace(z)
    m = z.max(-1)
    xp.subtract(z, m[..., None], out=out)
    return m, xp.exp(out, out=out), row_sum(out)


def _at_target(z: Array, targets: Array, ignore_index: int) -> Array:
    """z_n,target of each row."""
    xp = namespace(z)
    column = xp.where(targets == ignore_index, 0, targets)
    return xp.take_along_axis(z, column[..., None], axis=-1)[..., 0]


def reduce(losses: Array, targets: Array, ignore_index: int, reduction: str, loss: Array | None) -> Array:
    """The losses of the rows, 0 where ignored; or their sum; or their mean over the valid rows."""
    xp = namespace(losses)
    valid = targets != ignore_index
    losses = xp.where(valid, losses, 0)
    loss = result(loss, losses.shape if reduction == "none" else (), losses)
    loss[...] = losses if reduction == "none" else losses.sum()
    if reduction == "mean":
        loss /= xp.maximum(valid.sum(), 1).astype(loss.dtype)
    return loss


def row_weights(dloss: Array | float, targets: Array, ignore_index: int, reduction: str, dtype) -> Array:
    """w_n, by which row n of (p - one_hot) counts: dloss, divided by the number of valid rows for a mean."""
    xp = namespace(targets)
    valid = targets != ignore_index
    w = xp.where(valid, xp.asarray(dloss, dtype), xp.zeros((), dtype))
    return w / xp.maximum(valid.sum(), 1).astype(dtype) if reduction == "mean" else w


def _subtract_targets(dlogits: Array, V: int, w: Array, targets: Array, ignore_index: int) -> None:
    """dlogits -= w · one_hot(target); exactly 0 in ignored rows, whatever stood there, and in the padding."""
    rows = dlogits.reshape(-1, dlogits.shape[-1])
    targets = targets.reshape(-1)
    valid = (targets != ignore_index).nonzero()[0]
    rows[valid, targets[valid]] -= w.reshape(-1)[valid]
    rows[targets == ignore_index] = 0
    rows[:, V:] = 0
