"""Numbers read from the device one step late, so that the device never waits for the host."""

from typing import Any

import numpy as np

from llmlab import arrays


class Readback:
    """Scalars on their way to the host: asked for now, read when they are needed.

    On a GPU the copies are queued behind the work that makes the scalars, and `values` waits for those
    copies alone, not for what was queued after them. On a CPU the scalars are copied at once.

    >>> Readback(loss=np.float32(1.5)).values()
    {'loss': 1.5}
    """

    def __init__(self, **scalars: Any):
        self.done = None
        self.host = {name: to_host(scalar) for name, scalar in scalars.items()}
        if any(arrays.is_cupy(scalar) for scalar in scalars.values()):
            import cupy

            self.done = cupy.cuda.get_current_stream().record()

    def values(self) -> dict[str, float]:
        """The scalars as Python floats; waits until they are there."""
        if self.done is not None:
            self.done.synchronize()
        return {name: float(value.reshape(())) for name, value in self.host.items()}


def to_host(scalar: Any) -> np.ndarray:
    """A copy on the host; from a GPU it is only queued, into memory that the GPU can write by itself."""
    if not arrays.is_cupy(scalar):
        return np.array(scalar)
    import cupyx

    return scalar.get(out=cupyx.empty_pinned(scalar.shape, scalar.dtype), blocking=False)
