"""In which dtype a network computes, and what that asks of training.

Masters, moments, statistics and gradients of parameters are float32 in every precision (float64 in fp64,
which is for gradient checks). What changes is the compute copy of the parameters and the activations, and
whether the loss must be scaled so that gradients don't vanish in a dtype that knows nothing below 6e-8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmlab import arrays
from llmlab.optim.loss_scaling import LossScale

__all__ = ["Precision"]

_DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Precision:
    """A precision by its short name (fp32, bf16, fp16, fp64) or by that of its dtype.

    >>> Precision("bf16").compute.name, Precision("float16").scaled
    ('bfloat16', True)
    >>> Precision("fp8")
    Traceback (most recent call last):
    ValueError: precision is 'fp8', needs to be one of fp64, fp32, bf16, fp16
    """

    name: str

    def __post_init__(self) -> None:
        short = {long: short for short, long in _DTYPES.items()}.get(self.name, self.name)
        if short not in _DTYPES:
            raise ValueError(f"precision is {self.name!r}, needs to be one of {', '.join(_DTYPES)}")
        object.__setattr__(self, "name", short)

    @property
    def compute(self) -> np.dtype:
        """The dtype of activations and of the parameters' compute copy."""
        return arrays.dtype(_DTYPES[self.name])

    @property
    def scaled(self) -> bool:
        """Whether the loss needs a scale."""
        return self.name == "fp16"

    def loss_scale(self, device: str = "cpu") -> LossScale | None:
        """A dynamic loss scale, or None where gradients don't need one."""
        return LossScale(device=device) if self.scaled else None
