"""What an op reads and makes, by its signatures."""

from llmlab.op_interface import function
from llmlab.ops import gelu, residual_layernorm


def test_signatures_say_what_an_op_reads_and_makes():
    backward = function(residual_layernorm, "backward")
    assert backward.reads[:2] == ("dr", "dy")
    assert backward.makes == ("dx", "dbranch", "dweight", "dbias", "dbranch_bias")
    assert "branch_bias" not in backward.required
    assert function(residual_layernorm, "forward").nullable == {"branch_bias"}
    assert function(gelu, "recompute") is None
