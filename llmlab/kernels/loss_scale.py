"""Launches ``loss_scale.cu`` for ``llmlab.optim.loss_scaling``."""

from __future__ import annotations

from llmlab.arrays import Array, float32
from llmlab.kernels.loader import load


def update(
    scale: Array,
    inverse: Array,
    good: Array,
    stuck: Array,
    norm: Array,
    growth: float,
    backoff: float,
    interval: int,
    minimum: float,
    maximum: float,
) -> Array:
    """Launches ``loss_scale_update``, one thread; returns ``scale``, the work still in the stream.

    NotImplemented for a norm in another dtype than float32.
    """
    if norm.dtype != float32:
        return NotImplemented
    kernel = load("loss_scale").get_function("loss_scale_update")
    kernel((1,), (1,), (scale, inverse, good, stuck, norm, growth, backoff, interval, minimum, maximum))
    return scale
