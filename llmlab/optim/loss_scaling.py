"""Dynamic loss scaling: how float16 gradients are kept from vanishing (Micikevicius et al. 2018).

float16 knows nothing below 6e-8, so the loss is multiplied by a scale before backward and the gradients by
its inverse after. The largest scale that does not overflow is found by trying: after `interval` good steps
in a row it grows, and a step with a non-finite gradient is refused and lowers it. The state lives beside
the parameters, so no step waits for the host to read it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from llmlab.arrays import Array, gpu_available, namespace, to_numpy
from llmlab.kernels import accelerated
from llmlab.ops.check import between, integer, saved

__all__ = ["LossScale", "update"]

_LONGEST = 2**31 - 1  # steps to an interval: they are counted in int32


@accelerated("loss_scale", "update")
def update(
    scale: Array, inverse: Array, good: Array, stuck: Array, norm: Array,
    growth: float, backoff: float, interval: int, minimum: float, maximum: float,
) -> Array:
    """Move the scale after a step whose gradient had this norm, in place; returns `scale`.

    Args:
        scale, inverse: (1,) float32, the factors for the loss and for the gradients.
        good, stuck: (1,) int32, good steps since the scale last moved or a step was refused; refused steps
            at the minimum.
        norm: (1,), not finite if the step was refused.
        growth, backoff, interval, minimum, maximum: as in `LossScale`.

    >>> scale, inverse, norm = np.full((3, 1), 8, np.float32)
    >>> good, stuck = np.zeros((2, 1), np.int32)
    >>> update(scale, inverse, good, stuck, norm, 2.0, 0.5, 1, 1.0, 64.0).tolist(), inverse.tolist()
    ([16.0], [0.0625])
    """
    xp = namespace(scale)
    finite = xp.isfinite(norm)
    stuck += ~finite & (scale <= np.float32(minimum))
    good[...] = xp.where(finite, good + 1, 0)
    grows = good >= interval
    moved = xp.where(finite, xp.where(grows, scale * growth, scale), scale * backoff)
    scale[...] = moved.clip(minimum, maximum)
    inverse[...] = 1 / scale
    good *= ~grows  # an assignment through a mask would wait for its count on a GPU
    return scale


class LossScale:
    """The scale of the loss, and the rule by which it moves.

    Args:
        initial: the scale of the first step.
        growth: what the scale is multiplied by after `interval` good steps in a row.
        backoff: what it is multiplied by after a refused step.
        interval: good steps in a row before it grows, below 2**31.
        minimum, maximum: the scale stays within. A refused step at the minimum is a warning: then it is not
            the scale that makes the gradients overflow.
        device: "cpu" or "cuda", where the gradients are.

    >>> scale = LossScale(initial=8.0, interval=2)
    >>> for norm in (1.0, 1.0, np.inf):
    ...     scale.update(np.array([norm], np.float32))
    ...     print(float(scale.scale[0]), end=" ")
    8.0 16.0 8.0
    """

    def __init__(
        self, initial: float = 65536.0, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000,
        minimum: float = 1.0, maximum: float = 2.0**24, device: str = "cpu",
    ) -> None:
        for name, value in (("initial", initial), ("growth", growth), ("backoff", backoff),
                            ("minimum", minimum), ("maximum", maximum)):
            between(name, value, 0)
        if not minimum <= initial <= maximum <= 2.0**96:
            raise ValueError(f"initial is {initial}, minimum {minimum} and maximum {maximum}, needs "
                             f"0 < minimum <= initial <= maximum <= 2**96")
        if not 0 < backoff < 1 < growth:
            raise ValueError(f"backoff is {backoff} and growth {growth}, needs 0 < backoff < 1 < growth")
        integer("interval", interval, 1, _LONGEST)
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device is {device!r}, needs to be 'cpu' or 'cuda'")
        if device == "cuda" and not gpu_available():
            raise ValueError("device is 'cuda', but there is no GPU here; use 'cpu'")
        self.growth, self.backoff, self.interval = float(growth), float(backoff), int(interval)
        self.minimum, self.maximum = float(minimum), float(maximum)
        xp = np
        if device == "cuda":
            import cupy as xp
        self.scale = xp.full(1, initial, np.float32)
        """The factor for the loss, (1,), on the device."""
        self.inverse = 1 / self.scale
        """The factor for the gradients, (1,), on the device."""
        self.good = xp.zeros(1, np.int32)
        """Good steps since the scale last moved or a step was refused."""
        self.stuck = xp.zeros(1, np.int32)
        """Refused steps at the minimum since `warn_if_stuck` last looked."""

    def update(self, norm: Array) -> None:
        """Move the scale after a step whose gradient had this norm, (1,); on a CPU, warn at the minimum."""
        if getattr(norm, "shape", None) != (1,):
            raise ValueError(f"norm is {norm!r}, needs to be an array of one element, as AdamW.step "
                             f"returns it")
        update(self.scale, self.inverse, self.good, self.stuck, norm,
               self.growth, self.backoff, self.interval, self.minimum, self.maximum)
        if isinstance(self.scale, np.ndarray):
            self.warn_if_stuck()

    def warn_if_stuck(self) -> None:
        """Warn if steps were refused at the smallest scale. On a GPU this waits, so call it when you log."""
        count = int(to_numpy(self.stuck)[0])
        if count:
            self.stuck[...] = 0
            warnings.warn(f"{count} step(s) had a non-finite gradient at the smallest loss scale "
                          f"({self.minimum:g}): it is not the scale; lower the learning rate, "
                          f"or look at the data", RuntimeWarning, stacklevel=3)

    @property
    def state(self) -> dict[str, Any]:
        """The arrays that a resumed run needs."""
        return {"scale": self.scale, "good": self.good}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise TypeError for arrays of another dtype, and ValueError for another shape, a scale outside of
        this one's limits and an impossible count.
        """
        saved(state, self.state, scale=(self.minimum, self.maximum), good=(0, _LONGEST - 1))

    def load(self, state: dict[str, Any]) -> None:
        """Overwrite the state with arrays saved from `state`, from the host or the device.

        Raises what `check_state` raises. Nothing is overwritten then.
        """
        self.check_state(state)
        for name, array in self.state.items():
            array[...] = namespace(array).asarray(state[name])
        self.inverse[...] = 1 / self.scale
