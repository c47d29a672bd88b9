"""What a profile counts, on kernels whose traffic can be told by hand."""

import numpy as np
import pytest

from llmlab.kernels import emulator
from llmlab.kernels.emulator import Out

CODE = """
__device__ float load(const float* x, int i) { return x[i]; }

extern "C" __global__ void copy(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];  // copy
}

extern "C" __global__ void strided(float* y, const float* x, int stride, int offset) {
  y[threadIdx.x] = x[threadIdx.x * stride + offset];  // strided
}

extern "C" __global__ void by_four(float4* y, const float4* x) {
  y[threadIdx.x] = x[threadIdx.x];  // by four
}

extern "C" __global__ void rows_twice(float* y, const float* x, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += 32) sum += x[i];  // first pass
  sum = __shfl_sync(~0u, sum, 0);
  for (int i = threadIdx.x; i < n; i += 32) y[i] = x[i] - sum;  // second pass
}

// The lanes take different numbers of turns.
extern "C" __global__ void ragged(float* y, const float* x) {
  float sum = 0.0f;
  for (int i = 0; i <= threadIdx.x; i++) sum += x[32 * i + threadIdx.x];  // ragged
  y[threadIdx.x] = sum;
}

extern "C" __global__ void divergent(float* y, const float* x) {
  int i = threadIdx.x;
  if (i % 2) y[i] = load(x, i);  // odd
  else y[i] = load(x, 32 + i);   // even
}

extern "C" __global__ void tile(float* y, const float* x, int stride) {
  __shared__ float s[1024];
  for (int i = threadIdx.x; i < 1024; i += 32) s[i] = x[i];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x * stride % 1024];  // bank
}

extern "C" __global__ void count(unsigned* counts, const int* x) {
  atomicAdd(&counts[x[threadIdx.x]], 1u);  // atomic
}

extern "C" __global__ void in_place(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x] + 1.0f; }

extern "C" __global__ void races(float* y) { y[0] += 1.0f; }
"""


def line_of(comment):
    return 1 + CODE[: CODE.index(f"// {comment}")].count("\n")


@pytest.fixture(scope="module")
def module():
    return emulator.Module(CODE, mode="profile", filename="traffic.cu")


def floats(n):
    return np.arange(n, dtype=np.float32)


def test_a_copy_moves_each_byte_once(module):
    x, y = floats(1000), floats(1000)
    profile = module.launch("copy", 8, 128, [Out(y), x, 1000])
    assert (profile.bytes_read, profile.bytes_written) == (x.nbytes, y.nbytes)
    arrays = profile.arrays
    assert list(arrays) == ["y", "x"]
    assert (arrays["x"].times_read, arrays["x"].written, arrays["y"].times_written) == (1.0, 0, 1.0)
    read = profile.at(line_of("copy"), "x")
    assert (read.requests, read.lanes, read.sectors, read.ideal_sectors) == (32, 1000, 125, 125)
    assert read.text.strip().startswith("if (i < n)")


@pytest.mark.parametrize(
    ("stride", "offset", "sectors"),
    [(1, 0, 4), (1, 1, 5), (2, 0, 8), (4, 0, 16), (8, 0, 32), (33, 0, 32), (0, 0, 1)],
)
def test_sectors(module, stride, offset, sectors):
    x = floats(32 * 33 + 1)
    profile = module.launch("strided", 1, 32, [floats(32), x, stride, offset])
    read = profile.at(line_of("strided"), "x")
    assert (read.sectors, read.ideal_sectors) == (sectors, 4 if stride else 1)
    assert read.sectors_per_request == sectors
    assert profile.at(line_of("strided"), "y").sectors == 4


def test_a_vector_is_one_request(module):
    profile = module.launch("by_four", 1, 64, [floats(256), floats(256)])
    read = profile.at(line_of("by four"), "x", "read")
    assert (read.requests, read.sectors, read.bytes) == (2, 32, 1024)


def test_reading_twice_shows(module):
    x = floats(320)
    profile = module.launch("rows_twice", 1, 32, [floats(320), x, 320])
    assert profile.arrays["x"].times_read == 2.0
    assert profile.arrays["x"].read == 2 * profile.arrays["x"].touched_read == 2 * x.nbytes
    assert (
        profile.at(line_of("first pass")).requests == profile.at(line_of("second pass"), "x").requests == 10
    )
    assert profile.warp_meetings == 1


def test_lanes_that_stop_earlier(module):
    profile = module.launch("ragged", 1, 32, [floats(32), floats(1024)])
    read = profile.at(line_of("ragged"))
    assert (read.requests, read.lanes) == (32, 32 * 33 // 2)


def test_both_sides_of_a_branch_are_requests_of_their_own(module):
    profile = module.launch("divergent", 1, 32, [floats(32), floats(64)])
    reads = [t for t in profile.lines if t.access == "read"]
    assert sum(t.requests for t in reads) == 2 and sum(t.lanes for t in reads) == 32
    assert profile.at(line_of("odd"), "y").lanes == profile.at(line_of("even"), "y").lanes == 16


@pytest.mark.parametrize(("stride", "conflicts"), [(0, 0), (1, 0), (2, 1), (3, 0), (8, 7), (32, 31), (33, 0)])
def test_bank_conflicts(module, stride, conflicts):
    profile = module.launch("tile", 1, 32, [floats(32), floats(1024), stride])
    line = profile.at(line_of("bank"), "s")
    assert (line.requests, line.bank_conflicts, line.wavefronts) == (1, conflicts, conflicts + 1)
    assert profile.bank_conflicts == conflicts
    assert profile.barriers == 1


def test_atomics(module):
    counts, x = np.zeros(64, np.uint32), (np.arange(32, dtype=np.int32) // 2)
    profile = module.launch("count", 1, 32, [counts, x])
    line = profile.at(line_of("atomic"), "counts")
    assert (line.access, line.requests, line.lanes, line.sectors) == ("atomic", 1, 32, 2)
    assert (counts[:16] == 2).all()


def test_one_request_lane_by_lane(module):
    profile = module.launch("strided", 1, 20, [floats(32), floats(100), 4, 3])
    request = profile.at(line_of("strided"), "x").first
    assert (
        request.offsets[:20] == tuple(16 * i + 12 for i in range(20)) and request.offsets[20:] == (None,) * 12
    )
    assert (request.array, request.access, request.bytes, request.block, request.warp) == (
        "x",
        "read",
        4,
        (0, 0, 0),
        0,
    )
    assert request.sector_numbers == list(range(10)) and request.sectors == 10
    profile = module.launch("tile", 1, 32, [floats(32), floats(1024), 8])
    assert set(profile.at(line_of("bank"), "s").worst.banks) == {0, 8, 16, 24}


def test_arrays_in_one_memory_are_one_array(module):
    x = floats(32)
    profile = module.launch("in_place", 1, 32, [x, x])
    assert list(profile.arrays) == ["y/x"]
    assert (profile.bytes_read, profile.bytes_written) == (128, 128)


def test_counts_are_per_launch(module):
    first = module.launch("copy", 8, 128, [floats(1000), floats(1000), 1000])
    second = module.launch("copy", 8, 128, [floats(1000), floats(1000), 1000])
    assert first.total("global").requests == second.total("global").requests == 64
    assert first == second


def test_faults_are_found_while_profiling(module):
    with pytest.raises(emulator.RaceError):
        module.launch("races", 1, 64, [floats(1)])


def test_totals_and_look_ups(module):
    profile = module.launch("rows_twice", 1, 32, [floats(320), floats(320), 320])
    assert profile.total("global", "read").requests == 20
    assert profile.total("global", "read", "y").requests == 0
    with pytest.raises(LookupError, match="line .* has 2 such accesses"):
        profile.at(line_of("second pass"))
    with pytest.raises(LookupError, match="0 such accesses .none."):
        profile.at(1)


def test_tables(module):
    profile = module.launch("strided", 1, 32, [floats(32), floats(100), 2, 0])
    text = str(profile)
    assert "strided: grid (1, 1, 1), block (32, 1, 1), 0 barriers" in text
    row = next(line for line in text.splitlines() if "read x" in line)
    assert row.split()[0] == f"traffic.cu:{line_of('strided')}" and row.endswith("1              8.0    4.0")
    html = profile._repr_html_()
    assert html.count('<table class="dataframe"') == 2  # the class that dark pages leave dark
    assert "y[threadIdx.x] = x[threadIdx.x * stride + offset];" in html
