"""The widget's JavaScript computes what the op computes."""

import json
import shutil
import subprocess
import urllib.parse

import numpy as np
import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install -e '.[book]'")

from llmlab import widgets
from llmlab.ops import layernorm
from llmlab.widgets import LayerNormWidget

NODE = shutil.which("node")


def in_javascript(x, g, eps):
    """What `layernorm` returns in the widget's module, the very text that a page loads."""
    module = "data:text/javascript," + urllib.parse.quote(LayerNormWidget._esm)
    program = f"""
        const {{ layernorm }} = await import({json.dumps(module)});
        console.log(JSON.stringify(layernorm({x.tolist()}, {g.tolist()}, {eps})));
    """
    command = [NODE, "--no-warnings", "--input-type=module", "-e", program]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(NODE is None, reason="no node; the browser tests run the same JavaScript in Chromium")
@pytest.mark.parametrize(
    ("C", "offset", "scale", "eps"), [(8, 0, 1, 1e-5), (8, -2, 0.4, 1e-5), (31, 2, 2, 0.1)]
)
def test_javascript_agrees_with_the_op(C, offset, scale, eps):
    rng = np.random.default_rng(C)
    x, g = offset + scale * rng.normal(size=C), rng.normal(size=C)
    one, zero = np.ones(C), np.zeros(C)
    xhat, mean, rstd = layernorm.forward(x[None], one, zero, eps)
    dx, _, _ = layernorm.backward(g[None], x[None], one, mean, rstd)
    js = in_javascript(x, g, eps)
    for name, right in {"mean": mean, "rstd": rstd, "xhat": xhat, "dx": dx}.items():
        np.testing.assert_allclose(js[name], np.squeeze(right), rtol=0, atol=1e-12, err_msg=name)
    taken = np.array(js["along_mean"]) + np.array(js["along_xhat"])
    np.testing.assert_allclose(rstd * (g - taken), dx[0], rtol=0, atol=1e-12)


def test_the_repr_never_varies():
    assert repr(LayerNormWidget()) == repr(LayerNormWidget(offset=1.0)) == "LayerNormWidget()"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"row": [1.0]}, "row has 1 numbers, needs 2 to 32"),
        ({"gradient": [1.0, 2.0]}, "gradient has 2 numbers, needs 8"),
        ({"offset": 4}, "offset is 4, needs to be from -2 to 2"),
        ({"scale": 0}, "scale is 0, needs to be from 0.4"),
        ({"eps": 0.0}, "eps is 0.0, needs to be above 0"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"row": [1.0, float("inf")], "gradient": [1.0, 2.0]}, r"row is \[1.0, inf\], needs finite numbers"),
        ({"gradient": [float("nan")] * 8}, "gradient is .*nan.*, needs finite numbers"),
    ],
)
def test_refuses_what_it_cannot_draw(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        LayerNormWidget(**wrong)


def test_every_widget_is_one_module_that_loads_nothing():
    for widget in widgets.by_id().values():
        assert "export default" in widget._esm
        assert not any(line.startswith("import ") for line in widget._esm.splitlines())
        assert "http" not in widget._esm.replace("http://www.w3.org/2000/svg", "")
