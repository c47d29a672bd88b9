"""Compiling and launching: names, templates, options, includes, built-ins, errors of the compiler."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import CompileError, Out

CODE = (Path(__file__).parent / "builtins.cu").read_text()
EXPRESSIONS = ("tools::fill<int>", "repeat<float, 4>", "repeat<double,2>")


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("include")
    (folder / "more.cuh").write_text("#pragma once\n__device__ inline int more(int i) { return i + 1; }\n")
    return emulator.Module(CODE, ["-DFACTOR=3", "--use_fast_math"], EXPRESSIONS, include_dirs=[folder])


def test_names(module):
    assert module.kernels[:3] == list(EXPRESSIONS)
    assert {"plain", "count_launches", "votes"} <= set(module.kernels)
    assert [p.text + " " + p.name for p in module.parameters("repeat<double,2>")] == [
        "double* y",
        "double value",
    ]
    with pytest.raises(ValueError, match="no kernel repeat; .* must be listed in name_expressions"):
        module.launch("repeat", 1, 1, [])
    with pytest.raises(ValueError, match="no kernel missing; the module has: tools::fill<int>"):
        module.launch("missing", 1, 1, [])


def test_templates_and_options(module):
    y = np.zeros(8, np.int32)
    module.launch("tools::fill<int>", 1, 8, [Out(y), 5])
    assert (y == 5).all()
    f = np.zeros(8, np.float32)
    module.launch("repeat<float, 4>", 1, 2, [Out(f), 1.0])
    assert f.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    module.launch("plain", 1, 8, [Out(f)])
    assert (f == 3 * np.arange(1, 9)).all()


def test_device_variables_live_as_long_as_the_module(module):
    y = np.zeros(1, np.int32)
    counts = []
    for _ in range(3):
        module.launch("count_launches", 1, 1, [y])
        counts.append(int(y[0]))
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]


@pytest.mark.parametrize(
    ("grid", "block"), [(3, 40), ((2, 3), (4, 5, 6)), ([2, 1, 2], (1024,)), (np.int64(2), (7, 3))]
)
def test_indices(module, grid, block):
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    y = np.zeros((blocks, threads), np.int32)
    module.launch("where_am_i", grid, block, [y])
    assert (y == np.arange(threads) + 1000 * np.arange(blocks)[:, None]).all()


def test_dimensions_are_whole_numbers(module):
    with pytest.raises(TypeError, match="grid must be one to three whole numbers; got 2.5"):
        module.launch("plain", 2.5, 1, [np.zeros(1, np.float32)])


def test_a_million_blocks(module):
    last = np.zeros(1, np.int32)
    module.launch("wide_grid", 10**6, 1, [last])
    assert last[0] == 10**6 - 1


def test_all_of_shared_memory(module):
    y = np.zeros(1024, np.float32)
    module.launch("much_shared", 1, 1024, [Out(y)], shared_mem=227 * 1024)
    assert (y == 227 * 256 - 1 - np.arange(1024)).all()


def test_votes(module):
    y = np.zeros((4, 64), np.int32)
    module.launch("votes", 1, 64, [y])
    assert (y[0] == 22).all() and (y[1] == 1 + 4).all() and y[2].all()
    assert (y[3].reshape(2, 32) == [[2], [1]]).all()


def test_lanes(module):
    y = np.zeros((9, 32), np.int32)
    module.launch("lanes", 1, 32, [y])
    t = np.arange(32)
    assert (y[0] == 5).all() and (y[1] == t // 8 * 8 + 3).all()
    assert (y[2] == np.where(t >= 3, t - 3, t)).all() and (y[3] == np.where(t % 16 < 13, t + 3, t)).all()
    assert (y[4] == t ^ 9).all() and (y[5] == t.sum()).all()
    assert (y[6] == np.bincount(t // 5)[t // 5]).all() and (y[7] == 2).all()
    assert (y[8] == np.where(t % 4 == 1, 8, -24)).all()


def test_atomics(module):
    y = np.array([0, 100, 0, 99, 0, 2**32 - 1, 0, 0, 0, 3, 0], np.uint32)
    f, wide = np.zeros(1, np.float32), np.zeros(1, np.uint64)
    module.launch("atomics", 1, 64, [y, f, wide])
    t = np.arange(64)
    assert y.tolist() == [
        t.sum(),
        36,
        63,
        0,
        2**32 - 1,
        0,
        np.bitwise_xor.reduce(t),
        64 % 10,
        (0 - 64) % 10,
        64,
        7,
    ]
    assert f[0] == 32 and wide[0] == 64 << 40


def test_arithmetic(module):
    y = np.zeros(20)
    module.launch("arithmetic", 1, 1, [y])
    expected = [
        0.5,
        10,
        5,
        2.5,
        2,
        -(2**31),
        31,
        4,
        2**31,
        2,
        0x07050301,
        3,
        1,
        1,
        15,
        2.5,
        1,
        0.5204999,
        np.e,
        np.sqrt(2),
    ]
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_min_and_max_of_integers(module):
    x, y = np.arange(-30, 30, dtype=np.int32), np.empty(60, np.int32)
    module.launch("smaller", 1, 60, [Out(y), x, 7])
    assert (y == np.clip(x, -7, 7)).all()


def test_a_sleeping_thread_lets_others_run(module):
    y = np.zeros(64, np.int64)
    module.launch("sleeps", 1, 64, [y], time_limit=5)
    assert y.all()


def test_control_c_stops_a_kernel(module):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        module.launch("spin", 1, 1, [np.zeros(1, np.float32)])
    y = np.zeros(8, np.float32)
    module.launch("plain", 1, 8, [y])  # and the emulator still works
    assert y[0] == 3


def test_launches_from_threads_wait_for_each_other(module):
    results = [np.zeros(1024, np.float32) for _ in range(6)]
    workers = [
        threading.Thread(target=module.launch, args=("much_shared", 1, 1024, [r], 227 * 1024))
        for r in results
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((r == results[0]).all() for r in results) and results[0].any()


# ---- what does not compile


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "__global__ void f(float* y) {\n  y[0] = wrong;\n}",
            ["mine.cu:2", "wrong", "     2 |   y[0] = wrong;"],
        ),
        (
            '__global__ void f(int* y) {\n  asm volatile("mov.u32 %0, %laneid;" : "=r"(*y));\n}',
            ["LLMLAB_EMULATED"],
        ),
        ("__global__ void f() {}\nvoid host() { f<<<1, 2>>>(); }", ["mine.cu:2", "launched from Python"]),
        ("__global__ void f(float* p) { cudaFree(p); }", ["host code"]),
    ],
)
def test_compile_errors_quote_the_line(code, words):
    with pytest.raises(CompileError) as caught:
        emulator.Module(code, filename="mine.cu")
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_mode():
    with pytest.raises(ValueError, match="mode must be one of fast, check, profile; got 'slow'"):
        emulator.Module("", mode="slow")


def test_nothing_is_imported_before_it_is_used():
    script = "import sys, llmlab.kernels; print('llmlab.kernels.emulator' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False"
