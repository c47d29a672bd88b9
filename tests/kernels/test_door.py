"""The door: which arrays run what, and arguments refused by name, with one message on both backends."""

import numpy as np
import pytest

from llmlab import kernels
from llmlab.kernels import signature

CODE = """
template <class T> __global__ void scale(T* y, const T* __restrict__ x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * by);
}
extern "C" __global__ void add_optional(float* y, const float* x, const float* bias) {
  y[threadIdx.x] = x[threadIdx.x] + (bias ? bias[threadIdx.x] : 1.0f);
}
"""


class Side:
    """NumPy arrays and the emulator, or CuPy arrays and the GPU."""

    def __init__(self, name):
        self.name = name
        if name == "cuda":
            import cupy as xp
        else:
            xp = np
        self.xp = xp

    def kernel(self, name, **options):
        return kernels.RawModule(code=CODE, name="scale.cu", **options).get_function(name)

    def floats(self, n=8):
        return self.xp.arange(n, dtype=np.float32)


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def side(request):
    return Side(request.param)


def launch(side, **changes):
    arguments = {"y": side.floats(), "x": side.floats(), "by": 0.5, "n": 8, **changes}
    side.kernel("scale<float>")((1,), (8,), tuple(arguments.values()))
    return arguments["y"].tolist()


@pytest.mark.parametrize(
    "by", [0.5, np.float64(0.5), np.float32(0.5), np.float16(0.5)], ids=lambda v: type(v).__name__
)
def test_numbers_become_the_type_that_the_kernel_reads(side, by):
    assert launch(side, by=by, n=np.int64(8)) == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": None}, TypeError, "argument x is None, .* kernels.null"),
        ({"x": 3.0}, TypeError, "argument x is a float; it needs an array of float32"),
        ({"by": None}, TypeError, "argument by is None"),
        ({"by": "a"}, TypeError, "argument by is a str; it needs a number"),
        ({"n": 8.0}, TypeError, "argument n is 8.0; the kernel takes a whole number .int32."),
        ({"n": 2**31}, ValueError, "argument n is 2147483648, outside int32"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_bad_numbers_are_refused_by_name(side, change, error, message):
    with pytest.raises(error, match="scale<float>: " + message):
        launch(side, **change)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda a: a.astype(np.float64),
            TypeError,
            "argument x is an array of float64; the kernel reads float32",
        ),
        (lambda a: a[::-1], ValueError, r"argument x is a view with strides \(-4,\)"),
        (lambda a: a.repeat(2)[::2], ValueError, r"argument x is a view with strides \(8,\)"),
        (lambda a: a.repeat(2).reshape(2, 8).T, ValueError, r"argument x is a view with strides \(4, 32\)"),
    ],
)
def test_bad_arrays_are_refused_by_name(side, make, error, message):
    with pytest.raises(error, match="scale<float>: " + message):
        launch(side, x=make(side.floats()))


def test_an_array_for_a_number_is_refused(side):
    with pytest.raises(TypeError, match=r"argument by is an array of shape \(\); the kernel takes a single"):
        launch(side, by=side.xp.asarray(np.float32(0.5)))


def test_a_wrong_count_is_refused(side):
    with pytest.raises(TypeError, match=r"takes 4 arguments \(y, x, by, n\); 2 were given"):
        side.kernel("scale<float>")((1,), (8,), (side.floats(), side.floats()))


def test_a_null_pointer_is_explicit(side):
    y = side.floats()
    side.kernel("add_optional")((1,), (8,), (y, side.floats(), kernels.null))
    assert y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((0,), (8,), 0, "grid"), ((1,), (1025,), 0, "block"), ((1,), (32, 33), 0, "more than 1024 threads"),
        ((1, 70000), (8,), 0, "grid"), ((1,), (8,), 300_000, "shared_mem is 300000 bytes; .* 232448"),
    ],
)  # fmt: skip
def test_impossible_launches_are_refused(side, grid, block, shared, message):
    with pytest.raises(ValueError, match=message):
        side.kernel("scale<float>")(grid, block, (side.floats(), side.floats(), 1.0, 8), shared_mem=shared)


@pytest.mark.parametrize("kilobytes", [1, 48, 100, 227])
def test_dynamic_shared_memory(side, kilobytes):
    code = """
    extern "C" __global__ void turn(float* y, const float* x, int n) {
      extern __shared__ float s[];
      for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
    }
    extern "C" __global__ void turn_beside_static(float* y, const float* x, int n) {
      extern __shared__ float s[];
      __shared__ float count;
      if (threadIdx.x == 0) count = n;
      for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[static_cast<int>(count) - 1 - i];
    }"""
    n = kilobytes * 256
    for name in ("turn", "turn_beside_static") if kilobytes < 227 else ("turn",):
        y = side.xp.empty(n, np.float32)
        arguments = (kernels.Out(y), side.floats(n), n)
        kernels.RawModule(code=code).get_function(name)((1,), (128,), arguments, shared_mem=4 * n)
        assert y[:3].tolist() == [n - 1, n - 2, n - 3]


def test_names_outside_the_expressions_are_refused():
    with pytest.raises(ValueError, match="scale<double> is not among the name_expressions"):
        kernels.RawModule(code=CODE, name_expressions=["scale<float>"]).get_function("scale<double>")


def test_name_expressions_given_together(side):
    kernel = side.kernel("scale<float>", name_expressions=["scale<float>", "scale<double>"])
    y = side.floats()
    kernel((1,), (8,), (y, side.floats(), 2.0, 8))
    assert y.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_read_only_outputs_are_refused():
    y = np.zeros(8, np.float32)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="argument y is read-only"):
        launch(Side("emulated"), y=y)


@pytest.mark.gpu
def test_numpy_and_cupy_do_not_mix():
    with pytest.raises(TypeError, match="both NumPy and CuPy arrays"):
        launch(Side("cuda"), x=np.zeros(8, np.float32))


def test_code_that_is_no_text():
    with pytest.raises(TypeError, match="code is None, needs to be the CUDA"):
        kernels.RawModule(code=None)


def test_unknown_kernel_file():
    with pytest.raises(ValueError, match=r"no kernel file gleu\.cu in llmlab; there are .*gelu"):
        kernels.load("gleu")


def test_unknown_mode():
    with (
        pytest.raises(ValueError, match="mode must be one of 'fast', 'check', 'profile'; got 'slow'"),
        kernels.emulated("slow"),
    ):
        pass


@pytest.mark.parametrize(
    ("declaration", "name", "dtype", "is_pointer", "is_const"),
    [
        ("const float *__restrict__ x", "x", "float32", True, True),
        ("T* y", "y", "float16", True, False),
        ("unsigned long long seed", "seed", "uint64", False, False),
        ("const std::int32_t* ids", "ids", "int32", True, True),
        ("const float4* v", "v", None, True, True),
        ("bool flag", "flag", "bool", False, False),
    ],
)
def test_parameters_are_read_from_the_text(declaration, name, dtype, is_pointer, is_const):
    head = "// a, comment (\ntemplate <class T, int N> __global__ void\n__launch_bounds__(32)"
    code = f"{head} f({declaration}, int n) {{}}"
    parameter, n = signature.parameters(code, "ns::f<__half, 4>")
    assert (parameter.name, parameter.is_pointer, parameter.is_const) == (name, is_pointer, is_const)
    assert (None if parameter.dtype is None else parameter.dtype.name) == dtype
    assert n.name == "n"


class TestDispatch:
    """Which of text and launcher a call runs."""

    @pytest.fixture
    def op(self, monkeypatch):
        from llmlab.kernels import door, residual

        door._launcher.cache_clear()
        monkeypatch.setattr(
            residual, "forward", lambda x, y=None: NotImplemented if x.size == 0 else "kernel"
        )

        @kernels.accelerated("residual", "forward")
        def op(x, y=None):
            return "text"

        yield op
        door._launcher.cache_clear()

    def test_numpy_arrays_run_the_text(self, op):
        assert op(np.ones(2, np.float32)) == "text"

    def test_numpy_arrays_run_the_kernel_when_emulated(self, op):
        with kernels.emulated():
            assert op(np.ones(2, np.float32)) == "kernel"
            assert op(x=np.ones(2, np.float16)) == "kernel"
            assert op.text(np.ones(2, np.float32)) == "text"
        assert op(np.ones(2, np.float32)) == "text"

    def test_float64_runs_the_text(self, op):
        with kernels.emulated():
            assert op(np.ones(2)) == "text"

    def test_a_launcher_may_decline(self, op):
        with kernels.emulated():
            assert op(np.ones(0, np.float32)) == "text"

    def test_the_setting_ends_with_the_block_also_after_an_error(self, op):
        with pytest.raises(RuntimeError), kernels.emulated():
            raise RuntimeError
        assert op(np.ones(2, np.float32)) == "text"

    @pytest.mark.gpu
    def test_cupy_arrays_run_the_kernel(self, op):
        import cupy

        assert op(cupy.ones(2, np.float32)) == "kernel"
        assert op(cupy.ones(2)) == "text"
        with pytest.raises(TypeError, match="NumPy and CuPy arrays in one call"):
            op(cupy.ones(2), np.ones(2))
