"""llmlab's own kernels by name."""

from __future__ import annotations

import functools

from llmlab.kernels import source
from llmlab.kernels.rawmodule import RawModule


@functools.cache
def load(name: str, options: tuple[str, ...] = ()) -> RawModule:
    """The kernels of ``llmlab/kernels/<name>.cu``, each compiled when first used.

    Raises:
        ValueError: if there is no such file; the message lists those that there are.

    >>> load("gelu").get_function("gelu_forward<float, true>").parameters[0].name
    'y'
    """
    if not (source.FOLDER / f"{name}.cu").is_file():
        known = ", ".join(sorted(file.stem for file in source.FOLDER.glob("*.cu")))
        raise ValueError(f"there is no kernel file {name}.cu in llmlab; there are {known}")
    return RawModule(code=source.read(f"{name}.cu"), options=options, name=f"{name}.cu")
