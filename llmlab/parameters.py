"""All trained arrays of a network in flat buffers, with named views into them.

One buffer a purpose means one reduction for the norm of the gradient, one launch for the optimizer, one
exchange between GPUs, one array to save. The decayed parameters come first, so weight decay is a single
comparison with `decay_end`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from llmlab import arrays
from llmlab.graph import Parameter
from llmlab.ops.check import saved

__all__ = ["Parameters", "Views", "aligned_zeros"]

ALIGNMENT = 64
"""Elements. Each parameter starts on such a boundary, 128 bytes in bfloat16; the gaps hold zeros for ever."""


class Views(Mapping):
    """Named views into one flat buffer."""

    def __init__(self, flat: Any, layout: Mapping[str, tuple[int, tuple[int, ...]]]) -> None:
        self._views = {
            name: flat[at:at + math.prod(shape)].reshape(shape) for name, (at, shape) in layout.items()
        }

    def __getitem__(self, name: str) -> Any:
        try:
            return self._views[name]
        except KeyError:
            raise KeyError(f"no parameter {name!r}; there are {', '.join(self._views)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class Parameters(Views):
    """Flat buffers of a network's parameters; `parameters[name]` is the view that the ops compute with.

    `master`      float32 (float64 in float64 mode), what the optimizer moves
    `gradient`    the same dtype; backward adds into it; `grad[name]` is a view of it
    `compute`     in the compute dtype; `master` itself where the two dtypes agree
    `decay_end`   weight decay acts on the elements before this index

    >>> p = Parameters({n: Parameter(n, (2, 3), decayed=n == "w") for n in ("b", "w")})
    >>> p["w"].shape, p.decay_end, p.count, p.master.size
    ((2, 3), 64, 12, 128)
    >>> p.grad["b"][...] += 1
    >>> float(p.gradient.sum())
    6.0
    """

    def __init__(self, parameters: Mapping[str, Parameter], dtype: str | np.dtype = "float32",
                 device: str = "cpu") -> None:
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device is {device!r}, needs to be 'cpu' or 'cuda'")
        if device == "cuda" and not arrays.gpu_available():
            raise ValueError("device is 'cuda', but CuPy sees no GPU here; "
                             "pip install -e '.[gpu]', or use device='cpu'")
        compute = arrays.dtype(dtype)
        master = arrays.accumulation_dtype(compute)
        self.device = device
        self.dtype = compute
        self.specs = dict(parameters)
        self.layout, self.decay_end, size = _lay_out(self.specs)
        self.count = sum(math.prod(p.shape) for p in self.specs.values())
        """Trained numbers, without the gaps between them."""
        self.master = aligned_zeros(size, master, device)
        self.gradient = aligned_zeros(size, master, device)
        self.compute = self.master if compute == master else aligned_zeros(size, compute, device)
        self.master_views = Views(self.master, self.layout)
        self.grad = Views(self.gradient, self.layout)
        super().__init__(self.compute, self.layout)

    def zero_grad(self) -> None:
        """Set the gradient to zero, as backward adds into it."""
        self.gradient.fill(0)

    def write(self, name: str, values: Any) -> None:
        """Overwrite a parameter's master with an array from the host; call `refresh` after the last one."""
        values = np.asarray(values)
        view = self.master_views[name]
        if values.shape != view.shape:
            raise ValueError(f"{name!r} has shape {view.shape}, was given an array of shape {values.shape}")
        view[...] = arrays.namespace(view).asarray(values.astype(view.dtype, copy=False))

    def refresh(self) -> None:
        """Round the masters into the compute copy again, after they were written by hand."""
        if self.compute is not self.master:
            self.compute[...] = self.master.astype(self.dtype)

    @property
    def state(self) -> dict[str, Any]:
        """The array that a resumed run needs: the masters, of which all else is made."""
        return {"master": self.master}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise TypeError for masters of another dtype, and ValueError for another shape and for masters that
        are not finite.
        """
        saved(state, self.state)

    def load(self, state: dict[str, Any]) -> None:
        """Overwrite the masters, and the compute copy, with an array saved from `state`.

        Raises what `check_state` raises. Nothing is overwritten then.
        """
        self.check_state(state)
        self.master[...] = arrays.namespace(self.master).asarray(state["master"])
        self.refresh()

    def gradient_like(self) -> tuple[Any, Views]:
        """Another gradient buffer of zeros, and its views: for a worker of its own."""
        flat = aligned_zeros(self.gradient.size, self.gradient.dtype, self.device)
        return flat, Views(flat, self.layout)

    @property
    def nbytes(self) -> int:
        """Bytes of master, gradient and, where it is one of its own, compute copy."""
        copy = 0 if self.compute is self.master else self.compute.nbytes
        return self.master.nbytes + self.gradient.nbytes + copy


def aligned_zeros(size: int, dtype: np.dtype, device: str = "cpu") -> Any:
    """A 1-D array of zeros that starts on a 256-byte boundary, as CuPy's always do and NumPy's mostly don't.

    >>> aligned_zeros(3, np.dtype("float32")).ctypes.data % 256
    0
    """
    if size * dtype.itemsize > sys.maxsize - 256:  # of such a size NumPy says something else
        raise MemoryError(f"cannot allocate {size} elements of {dtype}")
    if device == "cuda":
        import cupy

        return cupy.zeros(size, dtype)
    raw = np.zeros(size * dtype.itemsize + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start:start + size * dtype.itemsize].view(dtype)


def _lay_out(
    parameters: Mapping[str, Parameter],
) -> tuple[dict[str, tuple[int, tuple[int, ...]]], int, int]:
    """Start and shape of each parameter, in the given order; where the decayed ones end; the whole size."""
    layout, at, decay_end = {}, 0, 0
    for parameter in sorted(parameters.values(), key=lambda p: not p.decayed):
        layout[parameter.name] = (at, tuple(parameter.shape))
        at += -(-math.prod(parameter.shape) // ALIGNMENT) * ALIGNMENT
        if parameter.decayed:
            decay_end = at
    return {name: layout[name] for name in parameters}, decay_end, at
