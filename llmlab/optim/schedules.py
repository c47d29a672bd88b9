"""The learning rate as a function of the step."""

from __future__ import annotations

import math

from llmlab.ops.check import between

__all__ = ["warmup_cosine"]


def warmup_cosine(step: int, lr: float, warmup: int, total: int, final: float = 0.1) -> float:
    """Linear warm-up to `lr`, then half a cosine down to `final` · lr (Loshchilov and Hutter 2017).

    lr · (step + 1)/warmup for step < warmup; then lr · (final + (1 - final) · ½(1 + cos(π progress))) where
    progress runs from 0 at step `warmup` to 1 at step `total` - 1, and stays there.

    Args:
        step: counted from 0.
        lr: the largest learning rate.
        warmup, total: numbers of steps, 0 <= warmup <= total, total at least 1.
        final: the last learning rate, as a share of `lr`, in [0, 1].

    Returns:
        A Python float, which leaves the dtype of arrays it meets alone.

    >>> [round(warmup_cosine(step, 1.0, warmup=2, total=5), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.55, 0.1, 0.1]
    """
    if not 0 <= warmup <= total or total < 1:
        raise ValueError(f"warmup is {warmup} and total {total}, needs 0 <= warmup <= total and total >= 1")
    if not 0 <= final <= 1:
        raise ValueError(f"final is {final}, needs to be a share of lr, in [0, 1]")
    between("step", step, 0, closed=True)
    between("lr", lr, 0, closed=True)
    lr = float(lr)
    if step < warmup:
        return lr * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - 1 - warmup))
    return lr * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))
