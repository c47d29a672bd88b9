"""Listings of shipped code: taken from the package, so that a chapter cannot drift from it."""

import pytest

from llmlab.book.chapter.listing import cuda_source, source
from llmlab.kernels.source import read
from llmlab.ops import layernorm


def test_a_function_without_decorators_and_docstring():
    listing = source(layernorm.backward)
    assert listing.startswith("def backward(")
    assert '"""' not in listing and "@" not in listing.partition("\n")[0]


@pytest.mark.parametrize("name", ["thread_forward", "warp_dx", "fused_backward"])
def test_a_kernel_is_shown_whole_and_as_it_stands(name):
    listing = cuda_source("layernorm_ladder.cu", name)
    assert listing in read("layernorm_ladder.cu")
    assert listing.startswith("template <") and f" {name}(" in listing
    assert listing.endswith("\n}") and listing.count("{") == listing.count("}")


def test_device_functions_of_one_line_and_of_many():
    assert cuda_source("common.cuh", "warp_max").count("\n") == 0
    assert cuda_source("common.cuh", "block_reduce").endswith("\n}")


def test_an_unknown_name_is_refused():
    with pytest.raises(LookupError, match="layernorm.cuh defines no function nothing"):
        cuda_source("layernorm.cuh", "nothing")
