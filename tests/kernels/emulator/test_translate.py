"""CUDA text to C++: what is found in it, and how shared variables of every form are declared."""

from pathlib import Path

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator.declarations import find
from llmlab.kernels.emulator.tokens import without_comments
from llmlab.kernels.emulator.translate import source_lines, translate


def test_comments_become_blanks_and_literals_stay():
    code = 'a; // one\nb /* two\nthree */ c; "// not" \'"\' d;'
    plain = without_comments(code)
    assert plain.split("\n")[0].rstrip() == "a;"
    assert plain.count("\n") == code.count("\n") and len(plain) == len(code)
    assert '"// not"' in plain and "d;" in plain


@pytest.mark.parametrize(
    ("declaration", "type_", "variables"),
    [
        ("__shared__ float s[128];", "float", (("s", "[128]"),)),
        ("__shared__ unsigned int a[2][3], b;", "unsigned int", (("a", "[2][3]"), ("b", ""))),
        ("static __shared__ int n;", "int", (("n", ""),)),
        ("__shared__ static volatile float s[N + 1];", "volatile float", (("s", "[N + 1]"),)),
        ("__shared__ __align__(16) __nv_bfloat16 s[16][24];", "__nv_bfloat16", (("s", "[16][24]"),)),
        ("__align__(16) __shared__ float s[4];", "float", (("s", "[4]"),)),
        ("__shared__ alignas(sizeof(float4)) T s[4];", "T", (("s", "[4]"),)),
        (
            "__shared__ Pair<float, 3> s[a < b ? 1 : 2], *p;",
            "Pair<float, 3>",
            (("s", "[a < b ? 1 : 2]"), ("p", "")),
        ),
        ("__shared__ typename Storage<T>::Type s;", "typename Storage<T>::Type", (("s", ""),)),
        ("__shared__ struct { float x; int y[2]; } s;", "struct { float x; int y[2]; }", (("s", ""),)),
        ("__shared__ float* where;", "float*", (("where", ""),)),
    ],
)
def test_shared_declarations(declaration, type_, variables):
    _, (found,) = find(f"__global__ void f() {{ {declaration} }}")
    assert (found.type, found.variables) == (type_, variables)
    assert not found.is_dynamic and found.in_function


def test_dynamic_shared_inside_and_outside_a_function():
    _, found = find(
        "extern __shared__ float a[];\n__global__ void f() { extern __shared__ __align__(16) char b[]; }"
    )
    assert [(d.variables[0][0], d.is_dynamic, d.in_function) for d in found] == [
        ("a", True, False),
        ("b", True, True),
    ]


def test_kernels():
    code = """
    #define KERNEL extern "C" __global__ void
    template <class T, int n>
    __global__ void __launch_bounds__(128, 2) a(T* __restrict__ y, const Box<T, n> x, const int count);
    extern "C" { __global__ void b(void) {} }
    namespace inner { static __global__ void c(float4 v) {} }
    KERNEL d(float *y) {}
    """
    kernels, _ = find(code)
    assert [(k.name, k.is_template, k.is_extern_c, k.namespace, k.max_threads) for k in kernels] == [
        ("a", True, False, "", 128),
        ("b", False, True, "", None),
        ("c", False, False, "inner", None),
        ("d", False, True, "", None),
    ]
    assert [k.parameters for k in kernels] == [("y", "x", "count"), (), ("v",), ("y",)]


def test_lines_stay_in_place(tmp_path):
    (tmp_path / "inner.cuh").write_text("#pragma once\n// comment\nint inner;\n")
    include = '#include "inner.cuh"\n'
    code = 2 * include + "__global__ void f() {\n  __shared__ float\n    s[4];\n}\n"
    translation = translate(code, "f.cu", (), [tmp_path])
    assert translation.sources["inner.cuh"][3] == "int inner;"
    assert translation.sources["f.cu"][3] == "__global__ void f() {"
    lines = source_lines(translation.text)
    assert lines["f.cu"][6] == "}"
    assert list(translation.kernels) == ["f"]


def test_line_directives_of_the_text_are_kept():
    text = '#line 1 "a.cu"\nint a;\n#line 7 "b.cuh"\nint b;\n#line 3 "a.cu"\nint c;'
    assert source_lines(text) == {"a.cu": {1: "int a;", 3: "int c;"}, "b.cuh": {7: "int b;"}}


SHARED = (Path(__file__).parent / "shared_forms.cu").read_text()


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_all_forms_run(mode):
    module = emulator.Module(SHARED, mode=mode)
    y = np.zeros(4, np.float32)
    module.launch("forms", 1, 4, [y], shared_mem=64)
    t = np.arange(4)
    assert (y == 3 + (3 - t) + 2 + 5 + 7 + 1 + 2 * t + 9 + 11 + 6 + 60).all()
