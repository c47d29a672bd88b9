"""What readers move with a slider. The computation is in each widget's JavaScript, so it also moves without a kernel.

    from llmlab.widgets import LayerNormWidget
    LayerNormWidget()

A new widget is a class on `llmlab.widgets.base.Widget` and one JavaScript file beside it with the same name: README.md.
"""

from llmlab.widgets.layernorm import LayerNormWidget

__all__ = ["LayerNormWidget", "by_id"]


def by_id() -> dict[str, type]:
    """The widget classes, by the name under which a notebook saves them."""
    return {f"{widget.__module__}.{widget.__qualname__}": widget for widget in (LayerNormWidget,)}
