"""The picture of a warp's accesses counts what it draws."""

import dataclasses

import numpy as np
import pytest

from llmlab import kernels
from llmlab.kernels.emulator.profile import Request

pytest.importorskip("matplotlib").use("agg")

from llmlab.kernels.picture import warp_accesses  # noqa: E402 (after the choice of a backend)


def request(offsets, size=4):
    request = Request("x", "global", "read", size, (0, 0, 0), 0, tuple(offsets), 0, 0)
    return dataclasses.replace(request, sectors=len(request.sector_numbers))


@pytest.mark.parametrize(
    ("offsets", "size", "says", "lines"),
    [
        ([4 * lane for lane in range(32)], 4, "32 lanes × 4 bytes, 4 sectors, 100 %", 1),
        ([4 * lane + 4 for lane in range(32)], 4, "32 lanes × 4 bytes, 5 sectors, 80 %", 2),
        ([16 * lane for lane in range(32)], 16, "32 lanes × 16 bytes, 16 sectors, 100 %", 4),
        ([256 * lane for lane in range(32)], 4, "32 lanes × 4 bytes, 32 sectors, 12.5 %", 8),
        ([100] * 32, 4, "32 lanes × 4 bytes, 1 sector, 12.5 %", 1),
        ([0, None, 64] + [None] * 29, 4, "2 lanes × 4 bytes, 2 sectors, 12.5 %", 1),
    ],
)
def test_counts(offsets, size, says, lines):
    ax = warp_accesses(request(offsets, size))
    assert ax.get_title(loc="left").startswith(f"A warp reads x: {says}")
    assert len(ax.get_yticks()) == lines
    ax.figure.clear()


def test_what_is_cut_is_said():
    ax = warp_accesses(request([1024 * lane for lane in range(32)]))
    assert ax.get_xlabel().endswith("24 more rows not shown")


def test_a_line_that_starts_at_another_than_the_first_byte():
    ax = warp_accesses(request([4 * lane + 512 for lane in range(32)]))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["byte 512"]


def test_a_profile_is_drawn():
    kernel = kernels.RawModule(
        code="""
    extern "C" __global__ void turn(float* y, const float* x) {
      __shared__ float tile[32][32];
      tile[threadIdx.x][threadIdx.y] = x[threadIdx.y * 32 + threadIdx.x];
      __syncthreads();
      y[threadIdx.x * 32 + threadIdx.y] = tile[threadIdx.y][threadIdx.x];
    }"""
    ).get_function("turn")
    x = np.zeros((32, 32), np.float32)
    with kernels.emulated("profile") as profiles:
        kernel((1,), (32, 32), (x.copy(), x))
    titles = [warp_accesses(line.worst).get_title(loc="left") for line in profiles[0].lines]
    assert sorted(titles) == [
        "A warp reads tile: 32 lanes × 4 bytes, 1 pass through shared memory",
        "A warp reads x: 32 lanes × 4 bytes, 4 sectors, 100 % of what moves is used",
        "A warp writes tile: 32 lanes × 4 bytes, 32 passes through shared memory",
        "A warp writes y: 32 lanes × 4 bytes, 32 sectors, 12.5 % of what moves is used",
    ]
