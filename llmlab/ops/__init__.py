"""The layers: one file each, with its derivation in short, its forward and its backward.

Every op is a module with two pure functions over arrays. Tensors that must be alive are positional;
attributes have a default or are named by the graph; results are keyword-only, so that a caller may hand in
the buffer to receive them::

    y, mean, rstd      = layernorm.forward(x, weight, bias, eps=1e-5, y=None, mean=None, rstd=None)
    dx, dweight, dbias = layernorm.backward(dy, x, weight, mean, rstd, dx=None, dweight=None, dbias=None)

- A buffer given for an activation is overwritten; one given for the gradient of a parameter is added to.
- float64 stays float64. float32, bfloat16 and float16 keep statistics, sums and parameter gradients in
  float32, and round once, at the end.
- The body is the *text*: NumPy that also runs on CuPy arrays. A kernel of the same name takes over on a GPU;
  `forward.text` is the text itself, anywhere.

Shapes: B batch, T sequence, C channels, H heads, D head size, V vocabulary, N rows (B·T).
"""

import importlib
from types import ModuleType

__all__ = [
    "attention", "cross_entropy", "dropout", "embedding", "gelu", "gelu_slope", "layernorm", "linear",
    "linear_cross_entropy", "residual", "residual_layernorm", "softmax",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
