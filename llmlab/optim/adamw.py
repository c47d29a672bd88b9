"""AdamW (Loshchilov and Hutter 2019) on flat buffers, with unscaling and clipping in the same pass.

With g the gradient, unscaled and shortened to norm `clip` if it is longer, and t the number of this update
from 1:

    m = β₁ m + (1 - β₁) g                 v = β₂ v + (1 - β₂) g²
    master = (1 - lr · weight_decay) master - lr · m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + ε)

The decay acts on the parameters directly, not through g, is multiplied by lr (unlike the paper's), and
stops at `decay_end`: matrices and embeddings come before it, norms and biases after. ε stands outside the
root. A gradient whose norm is not finite changes nothing at all, the count of updates included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from llmlab.arrays import Array, accumulation_dtype, is_cupy, namespace, scratch, scratch_frame
from llmlab.kernels import accelerated
from llmlab.ops._precision import result
from llmlab.ops.check import between, checked, integer, saved, scalar

if TYPE_CHECKING:
    from llmlab.parameters import Parameters

__all__ = ["AdamW", "step"]

_BLOCK = 1 << 17  # elements: what one pass over a block writes, the next still finds in the cache


def _blocks(x: Array) -> Iterator[slice]:
    """`x` in cache-sized runs; on a GPU, in one."""
    step = max(1, len(x)) if is_cupy(x) else _BLOCK
    for start in range(0, len(x), step):
        yield slice(start, min(start + step, len(x)))


def _number(x: float | Array) -> float:
    """A scalar that may live in an array of one element, as a Python float, which promotes nothing."""
    return float(x.item()) if hasattr(x, "item") else float(x)


def _check_step(
    master: Array, compute: Array | None, updates: Array, lr: float | Array, inverse_scale: float | Array,
    beta1: float, beta2: float, eps: float, weight_decay: float, clip: float, decay_end: int, **_,
) -> None:
    shape = getattr(compute, "shape", None)
    if compute is not None and shape != master.shape:
        raise ValueError(f"compute has shape {shape}, needs {master.shape} as master")
    if getattr(updates, "shape", None) != (1,) or updates.dtype != np.int64:
        raise TypeError(f"updates is {updates!r}, needs to be int64 of shape (1,), to be counted up")
    integer("decay_end", decay_end, 0, len(master))
    between("beta1", beta1, 0, 1, closed=True)
    between("beta2", beta2, 0, 1, closed=True)
    between("eps", eps, 0, closed=True)
    between("weight_decay", weight_decay, 0, closed=True)
    if not (isinstance(clip, float) and clip == math.inf):
        between("clip", clip, 0, repair="math.inf means no clipping")
    scalar("lr", lr, 0)
    scalar("inverse_scale", inverse_scale, 0)


@checked(_check_step, master="P", grad="P", m="P", v="P", norm="sum 1")
@accelerated("adamw", "step")
def step(
    master: Array, grad: Array, m: Array, v: Array, compute: Array | None, updates: Array,
    lr: float | Array, inverse_scale: float | Array, beta1: float, beta2: float, eps: float,
    weight_decay: float, clip: float, decay_end: int, *, norm: Array | None = None,
) -> Array:
    """One AdamW step, in place, unless the norm of the gradient is not finite; returns that norm.

    Args:
        master, grad, m, v: (P,), all float32 or all float64.
        compute: (P,) in any dtype, receives the new master, rounded; None, or master itself, if there is no
            copy.
        updates: (1,) int64, the number of updates made before, raised by one if this one is made.
        lr, inverse_scale: numbers, or arrays of one element; the gradient is grad · inverse_scale.
        clip: the largest norm let through; math.inf for all.
        decay_end: weight decay acts on master[:decay_end].

    Returns:
        norm: (1,) in the accumulation dtype, that of the gradient before clipping.

    >>> import numpy as np
    >>> p, m, v, updates = np.ones(1), np.zeros(1), np.zeros(1), np.zeros(1, np.int64)
    >>> norm = step(p, np.array([0.5]), m, v, None, updates, 0.01, 1.0, 0.9, 0.999, 1e-8, 0.1, np.inf, 1)
    >>> p.round(10).tolist(), int(updates[0]), norm.tolist()
    ([0.9890000002], 1, [0.5])
    """
    norm = result(norm, (1,), master, accumulation_dtype(master))
    scale = _number(inverse_scale)
    norm[...] = _root_of_squares(grad) * scale
    length = _number(norm)
    if not math.isfinite(length):
        return norm
    updates += 1
    t, lr = int(updates.item()), _number(lr)
    scale *= clip / length if length > clip else 1.0
    for i in _blocks(master):
        with scratch_frame():
            decayed = slice(i.start, max(i.start, min(i.stop, decay_end)))
            master[decayed] *= 1 - lr * weight_decay
            _move(master[i], grad[i], m[i], v[i], t, lr, scale, beta1, beta2, eps)
            if compute is not None and compute is not master:
                compute[i] = master[i]
    return norm


def _root_of_squares(grad: Array) -> Array:
    """√Σ grad², summed in float64: finite float32 gradients cannot overflow, nor small ones vanish."""
    xp = namespace(grad)
    squares = xp.zeros((), np.float64)
    for i in _blocks(grad):
        with scratch_frame():
            g = scratch(grad[i].shape, np.dtype(np.float64), grad)
            g[...] = grad[i]
            squares = squares + g @ g
    return xp.sqrt(squares)


def _move(
    master: Array, grad: Array, m: Array, v: Array, t: int, lr: float, scale: float,
    beta1: float, beta2: float, eps: float,
) -> None:
    """The moments, and the step along them."""
    xp = namespace(master)
    g, part = (scratch(master.shape, master.dtype, master) for _ in range(2))
    xp.multiply(grad, scale, out=g)
    # m = β₁ m + (1 - β₁) g
    m *= beta1
    m += xp.multiply(g, 1 - beta1, out=part)
    # v = β₂ v + (1 - β₂) g²
    v *= beta2
    g *= g
    g *= 1 - beta2
    v += g
    # master -= lr · m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + ε)
    root = xp.sqrt(v, out=g)
    root *= 1 / math.sqrt(1 - beta2**t)
    root += eps
    xp.divide(m, root, out=part)
    part *= lr / (1 - beta1**t)
    master -= part


class AdamW:
    """AdamW over all of a network's `Parameters`: two launches a step, and no waiting for the host.

    Args:
        params: the flat buffers. Each step reads `gradient` and moves `master` and `compute`.
        betas: decay rates of the two moments, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: times lr, what each step takes off the decayed parameters, relative to their size.
        clip: the largest norm of the whole gradient let through; None for no clipping.

    >>> from llmlab.graph import Parameter
    >>> from llmlab.parameters import Parameters
    >>> params = Parameters({"w": Parameter("w", (2, 2), decayed=True)})
    >>> optimizer = AdamW(params)
    >>> params.grad["w"][...] = 2
    >>> float(optimizer.step(lr=0.5)[0]), params["w"].tolist()   # a first step is lr long
    (4.0, [[-0.5, -0.5], [-0.5, -0.5]])
    """

    def __init__(
        self, params: Parameters, betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8,
        weight_decay: float = 0.1, clip: float | None = 1.0,
    ) -> None:
        try:
            beta1, beta2 = betas
        except (TypeError, ValueError) as error:
            raise type(error)(f"betas is {betas!r}, needs to be two numbers, such as (0.9, 0.95)") from None
        between("betas[0]", beta1, 0, 1, closed=True)
        between("betas[1]", beta2, 0, 1, closed=True)
        between("eps", eps, 0, closed=True)
        between("weight_decay", weight_decay, 0, closed=True)
        if clip is not None:
            between("clip", clip, 0, repair="None means no clipping")
        self.params = params
        self.betas = float(beta1), float(beta2)
        self.eps = float(eps)
        self.weight_decay = float(weight_decay)
        self.clip = math.inf if clip is None else float(clip)
        xp = namespace(params.master)
        self.m = xp.zeros_like(params.master)
        self.v = xp.zeros_like(params.master)
        self.updates = xp.zeros(1, np.int64)
        """How many updates were made, on the device; refused ones don't count."""
        self.norm = xp.zeros(1, params.master.dtype)
        """The norm of the last gradient, unscaled and before clipping, on the device."""

    def step(self, lr: float | Array, inverse_scale: float | Array = 1.0) -> Array:
        """Move the parameters by the gradient in `params.gradient`, times `inverse_scale`.

        Returns the norm of that gradient before clipping, (1,), on the device; if it is not finite, nothing
        was changed. The same buffer is returned at each step.
        """
        params = self.params
        return step(params.master, params.gradient, self.m, self.v, params.compute, self.updates, lr,
                    inverse_scale, *self.betas, self.eps, self.weight_decay, self.clip, params.decay_end,
                    norm=self.norm)

    @property
    def state(self) -> dict[str, Any]:
        """The arrays that a resumed run needs: the moments m and v, and the count of updates."""
        return {"m": self.m, "v": self.v, "updates": self.updates}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise TypeError for arrays of another dtype, and ValueError for another shape and for numbers that
        no run has: moments that are not finite, a negative second moment or count.
        """
        saved(state, self.state, v=(0, math.inf), updates=(0, math.inf))

    def load(self, state: dict[str, Any]) -> None:
        """Overwrite the state with arrays saved from `state`, from the host or the device.

        Raises what `check_state` raises. Nothing is overwritten then.
        """
        self.check_state(state)
        for name, array in self.state.items():
            array[...] = namespace(array).asarray(state[name])
