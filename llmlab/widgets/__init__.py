"""What readers move with a slider. Each widget computes in its JavaScript, so it also moves without a kernel.

    from llmlab.widgets import LayerNormWidget
    LayerNormWidget()

README.md tells how to add one.
"""

from llmlab.widgets.layernorm import LayerNormWidget

__all__ = ["LayerNormWidget", "by_id"]


def by_id() -> dict[str, type]:
    """The widget classes, by the name under which a notebook saves them."""
    return {f"{widget.__module__}.{widget.__qualname__}": widget for widget in (LayerNormWidget,)}
