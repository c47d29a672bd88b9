"""A row of C numbers, its layer normalisation, and the two terms that its gradient takes away."""

import math
from collections.abc import Sequence

import traitlets

from llmlab.widgets.base import Widget, module

ROW = (0.9, -1.4, 0.3, 1.8, -0.6, -0.2, 0.7, -1.5)
GRADIENT = (1.2, -0.1, 0.3, 1.6, 0.4, 0.9, 0.6, -0.5)


class LayerNormWidget(Widget):
    """Sliders for offset and scale of a row; pictures of x, x̂, the two gradient terms, and dx.

    x = offset + scale * row,  x̂ = (x - mean) * rstd,  dx = rstd * (g - mean(g) - x̂ * mean(g * x̂))

    row, gradient   (C,) numbers, 2 <= C <= 32; gradient is g = dy * weight, what reaches x̂ from above
    offset, scale   where the sliders stand: -2 to 2, and 0.4 to 2
    eps             added to the variance

    Raises `ValueError` for other sizes or values. The formulas are those of `llmlab.ops.layernorm`.

    >>> LayerNormWidget(offset=2.0)
    LayerNormWidget()
    """

    _esm = module("layernorm.js")
    row = traitlets.List(traitlets.Float()).tag(sync=True)
    gradient = traitlets.List(traitlets.Float()).tag(sync=True)
    offset = traitlets.Float().tag(sync=True)
    scale = traitlets.Float().tag(sync=True)
    eps = traitlets.Float().tag(sync=True)

    def __init__(
        self,
        row: Sequence[float] = ROW,
        gradient: Sequence[float] = GRADIENT,
        offset: float = 0.0,
        scale: float = 1.0,
        eps: float = 1e-5,
    ) -> None:
        row, gradient = [float(v) for v in row], [float(v) for v in gradient]
        if not 2 <= len(row) <= 32:
            raise ValueError(f"row has {len(row)} numbers, needs 2 to 32 to be drawn")
        if len(gradient) != len(row):
            raise ValueError(f"gradient has {len(gradient)} numbers, needs {len(row)}, one for each of row")
        for name, values in (("row", row), ("gradient", gradient)):
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{name} is {values}, needs finite numbers to be drawn")
        if not -2 <= offset <= 2:
            raise ValueError(f"offset is {offset}, needs to be from -2 to 2")
        if not 0.4 <= scale <= 2:
            raise ValueError(f"scale is {scale}, needs to be from 0.4 to 2")
        if not 0 < eps < math.inf:
            raise ValueError(f"eps is {eps}, needs to be above 0 and finite")
        super().__init__(row=row, gradient=gradient, offset=offset, scale=scale, eps=eps)
