"""LayerNorm, alone and behind a residual connection: three backends against the text in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.arrays import bfloat16, to_numpy
from llmlab.ops import layernorm, residual_layernorm

# Of the largest value: one rounding in the storage dtype, and the order of a float32 sum.
TOLERANCE = {"float32": 2e-6, "bfloat16": 2**-8, "float16": 2**-11}
SUMS = 2e-6  # parameter gradients and statistics are float32 whatever the dtype

# Whole packs and not, one column, one row, teams of one warp and of several, many rows.
SHAPES = [(1, 1), (5, 77), (37, 64), (2, 3, 40), (9, 600), (3, 1601), (2, 1600), (300, 8), (2, 8000)]
UP_TO_3E38 = [np.dtype(np.float32), bfloat16]
WIDE = [(2, 20000), (3, 16385)]  # past what a block's registers hold


def close(result, reference, tolerance):
    scale = max(1.0, np.abs(reference).max(initial=0))
    np.testing.assert_allclose(result.astype(np.float64), reference, rtol=0, atol=tolerance * scale)


def inputs(shape, dtype, seed=0):
    """x, branch, dy, dr of that shape, and weight, bias, branch_bias."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(s).astype(dtype)
        for s in (shape, shape, shape, shape, shape[-1:], shape[-1:], shape[-1:])
    ]


def wide(*arrays):
    return [None if a is None else a.astype(np.float64) for a in arrays]


def check_layernorm(backend, dtype, shape, offset=0):
    def at(array):
        return backend.array(array, offset)

    x, _, dy, _, weight, bias, _ = inputs(shape, dtype)
    y, mean, rstd = backend(layernorm.forward, at(x), at(weight), at(bias))
    y_64, mean_64, rstd_64 = layernorm.forward.text(*wide(x, weight, bias))
    assert y.dtype == dtype
    close(y, y_64, TOLERANCE[dtype.name])
    close(mean, mean_64, SUMS)
    close(rstd, rstd_64, SUMS)
    again = backend(layernorm.recompute, at(x), at(weight), at(bias), at(mean), at(rstd))
    np.testing.assert_array_equal(again, y)

    dx, dweight, dbias = backend(layernorm.backward, at(dy), at(x), at(weight), at(mean), at(rstd))
    dx_64, dweight_64, dbias_64 = layernorm.backward.text(*wide(dy, x, weight), mean_64, rstd_64)
    assert dx.dtype == dtype
    assert dweight.dtype == dbias.dtype == np.float32
    close(dx, dx_64, TOLERANCE[dtype.name])
    close(dweight, dweight_64, SUMS)
    close(dbias, dbias_64, SUMS)


@pytest.mark.parametrize("shape", SHAPES + WIDE, ids=str)
def test_against_float64(backend, dtype, shape):
    check_layernorm(backend, dtype, shape)


@settings(max_examples=5, derandomize=True)
@given(N=st.integers(0, 40), C=st.integers(1, 300), offset=st.integers(0, 3))
def test_any_shape_anywhere(backend, dtype, N, C, offset):
    check_layernorm(backend, dtype, (N, C), offset)


# Every shape with both a bias of the branch and a gradient along the stream; two shapes also without.
CASES = [(shape, True, True) for shape in SHAPES + WIDE[:1]]
CASES += [(shape, bias, not bias) for shape in ((37, 64), WIDE[0]) for bias in (True, False)]
CASES += [((37, 64), False, False)]


@pytest.mark.parametrize(("shape", "with_bias", "with_dr"), CASES, ids=str)
def test_behind_a_residual_connection(backend, dtype, shape, with_bias, with_dr):
    x, branch, dy, dr, weight, bias, branch_bias = inputs(shape, dtype)
    branch_bias, dr = branch_bias if with_bias else None, dr if with_dr else None
    at = backend.array
    at_bias, at_dr = (a if a is None else at(a) for a in (branch_bias, dr))
    r, y, mean, rstd = backend(residual_layernorm.forward, at(x), at(branch), at(weight), at(bias), at_bias)
    r_64 = sum(wide(x, branch)) + (0 if branch_bias is None else branch_bias.astype(np.float64))
    close(r, r_64, TOLERANCE[dtype.name])
    # LayerNorm reads the row as it was stored
    y_64, mean_64, rstd_64 = layernorm.forward.text(*wide(r, weight, bias))
    close(y, y_64, TOLERANCE[dtype.name])
    again = backend(residual_layernorm.recompute, at(r), at(weight), at(bias), at(mean), at(rstd))
    np.testing.assert_array_equal(again, y)

    results = backend(
        residual_layernorm.backward, at_dr, at(dy), at(r), at(weight), at(mean), at(rstd), at_bias
    )
    expected = residual_layernorm.backward.text(
        *wide(dr, dy, r, weight), mean_64, rstd_64, *wide(branch_bias)
    )
    for result, reference, tolerance in zip(results[:2], expected[:2], [TOLERANCE[dtype.name]] * 2):
        close(result, reference, tolerance)
    close(results[2], expected[2], SUMS)
    close(results[3], expected[3], SUMS)
    if branch_bias is None:
        assert results[4] is None
    else:  # the sum of dbranch, of which a wide row's is read back rounded
        close(results[4], expected[4], max(SUMS, TOLERANCE[dtype.name] if shape[-1] > 16384 else 0))


@pytest.mark.parametrize("mean", [0, 100, 1000, 10000])
def test_rows_far_from_zero(backend, mean):
    x = (mean + np.arange(16) * 1e-3).astype(np.float32)[None]
    y = backend(
        layernorm.forward, *map(backend.array, (x, np.ones(16, np.float32), np.zeros(16, np.float32)))
    )[0]
    expected = {0: -1.3416, 100: -1.3415, 1000: -1.3415, 10000: -1.3313}[mean]
    assert abs(y[0, 0] - expected) < (2e-2 if mean == 10000 else 2e-3)


@pytest.mark.parametrize(
    ("C", "size"), [(40, 1e17), (40, 1e19), (40, 1e22), (40, 1e30), (40, 3e38), (1600, 1e30), (16400, 1e30)]
)
@pytest.mark.parametrize("dtype", UP_TO_3E38, ids=str)
@pytest.mark.filterwarnings("ignore:(overflow encountered|invalid value):RuntimeWarning")
def test_of_squares_that_overflow_comes_nan_or_what_is_right(backend, dtype, size, C):
    """Rows from right to hopeless, and one beside them that stays as it is."""
    at, rng = backend.array, np.random.default_rng(0)
    x = (rng.uniform(0.5, 1, (2, C)) * [[size], [1]]).astype(dtype)
    dy, weight, bias = rng.standard_normal((2, C)).astype(dtype), np.ones(C, dtype), np.zeros(C, dtype)
    y_64, *statistics_64 = layernorm.forward.text(*wide(x, weight, bias))
    dx_64 = layernorm.backward.text(*wide(dy, x, weight), *statistics_64)[0]

    forward = backend(layernorm.forward, at(x), at(weight), at(bias))
    behind = backend(residual_layernorm.forward, at(np.zeros_like(x)), at(x), at(weight), at(bias), None)[1:]
    overflows = C * size**2 / 48 > 2.0**128  # spread evenly over size / 2, so with variance size^2 / 48
    for y, mean, rstd in forward, behind:
        dx = backend(layernorm.backward, at(dy), at(x), at(weight), at(mean), at(rstd))[0]
        again = backend(layernorm.recompute, at(x), at(weight), at(bias), at(mean), at(rstd))
        np.testing.assert_array_equal(again.astype(np.float32), y.astype(np.float32))
        for row in range(1 if overflows else 0, 2):
            close(y[row], y_64[row], 2 * TOLERANCE[dtype.name])
            spread = 1 if row else size  # dx is as small as x is large
            close(dx[row] * np.float64(spread), dx_64[row] * spread, 2 * TOLERANCE[dtype.name])
        if overflows:
            assert np.isnan(rstd[0])
            assert np.isnan(y[0].astype(np.float32)).all()
            assert np.isnan(dx[0].astype(np.float32)).all()


def test_sums_neither_stick_nor_drop_columns(backend, dtype):
    N, C = 4096, 1601 if backend.name == "cuda" else 33
    x, dy = np.random.default_rng(0).standard_normal((N, C)).astype(dtype), np.ones((N, C), dtype)
    at, weight = backend.array, np.ones(C, dtype)
    _, mean, rstd = backend(layernorm.forward, at(x), at(weight), at(weight))
    dweight, dbias = at(np.zeros(C, np.float32)), at(np.zeros(C, np.float32))
    for count in 1, 2:  # a bfloat16 sum would stick at 256, a float16 one at 2048
        backend(
            layernorm.backward, at(dy), at(x), at(weight), at(mean), at(rstd), dweight=dweight, dbias=dbias
        )
        assert dbias.tolist() == [float(N) * count] * C
    dweight_64 = layernorm.backward.text(*wide(dy, x, weight, mean, rstd))[1]
    close(to_numpy(dweight), 2 * dweight_64, 1e-5)


def test_in_place(backend, dtype):
    x, branch, dy, dr, weight, bias, branch_bias = inputs((6, 24), dtype)
    at = backend.array
    expected = backend(residual_layernorm.forward, at(x), at(branch), at(weight), at(bias), at(branch_bias))
    for over in "x", "branch":
        places = {"x": at(x), "branch": at(branch)}
        results = backend(
            residual_layernorm.forward,
            *places.values(),
            at(weight),
            at(bias),
            at(branch_bias),
            r=places[over],
        )
        for result, reference in zip(results, expected):
            np.testing.assert_array_equal(result, reference)
    r, _, mean, rstd = expected
    rest = at(r), at(weight), at(mean), at(rstd), at(branch_bias)
    expected = backend(residual_layernorm.backward, at(dr), at(dy), *rest)
    for over in "dr", "dy":
        places = {"dr": at(dr), "dy": at(dy)}
        out = places[over]
        results = backend(residual_layernorm.backward, *places.values(), *rest, dx=out, dbranch=out)
        for result, reference in zip(results, expected):
            np.testing.assert_array_equal(result, reference)
    place = at(x)
    y = backend(layernorm.forward, at(x), at(weight), at(bias))[0]
    np.testing.assert_array_equal(backend(layernorm.forward, place, at(weight), at(bias), y=place)[0], y)


def test_views_are_read_as_they_look(backend, dtype):
    x, *_, weight, bias, _ = inputs((10, 32), dtype)
    at = backend.array
    y = backend(layernorm.forward, at(x)[::-1, ::2], at(weight)[::2], at(bias)[::2])[0]
    close(y, layernorm.forward.text(*wide(x[::-1, ::2], weight[::2], bias[::2]))[0], TOLERANCE[dtype.name])


def test_same_input_same_bits(backend, dtype):
    x, _, dy, _, weight, bias, _ = inputs((333, 40), dtype)
    _, mean, rstd = backend(layernorm.forward, *map(backend.array, (x, weight, bias)))
    runs = [backend(layernorm.backward, *map(backend.array, (dy, x, weight, mean, rstd))) for _ in range(2)]
    for first, second in zip(*runs):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("C", [64, 40])
def test_traffic_is_the_least_there_is(C, traffic):
    """Each input read once, each output written once; backward's partial sums besides, which are few."""
    N, read, written, read_and_written = 12, (1, 0), (0, 1), (1, 1)
    x, _, dy, _, weight, bias, _ = inputs((N, C), np.dtype(np.float32))
    _, mean, rstd = layernorm.forward.text(x, weight, bias)
    forward = traffic(layernorm.forward, x, weight, bias)
    each_row = (N, 0)  # what rows share comes from a cache
    parameters = {"weight": each_row, "bias": each_row}
    assert forward == {"x": read, **parameters, "y": written, "mean": written, "rstd": written}
    backward = traffic(layernorm.backward, dy, x, weight, mean, rstd)
    sums = dict.fromkeys(("partials", "gradient_0", "gradient_1"), read_and_written)
    assert backward == {**dict.fromkeys(("dy", "x", "weight", "mean", "rstd"), read), "dx": written, **sums}
    assert backward.sizes["partials"] <= x.nbytes / 4


@pytest.mark.gpu
def test_more_than_two_billion_elements(gpu_room):
    import cupy as cp

    gpu_room(10)
    C, rows = 768, 2**31 // 768 + 5
    x = cp.zeros((rows, C), np.float16)
    x[-5:] = cp.random.standard_normal((5, C), dtype=np.float32).astype(np.float16)
    weight, bias = cp.ones(C, np.float16), cp.zeros(C, np.float16)
    y, mean, rstd = layernorm.forward(x, weight, bias)
    alone = layernorm.forward(x[-5:].copy(), weight, bias)
    for whole, part in zip((y, mean, rstd), alone):
        assert (whole[-5:] == part).all()
    dx, dweight, _ = layernorm.backward(y, x, weight, mean, rstd, dx=y)
    alone = layernorm.backward(alone[0].copy(), x[-5:].copy(), weight, *alone[1:])
    assert (dx[-5:] == alone[0]).all()
    assert abs(dweight - alone[1]).max() < 1e-5


def test_within_twice_the_error_of_torch(backend, dtype):
    torch = pytest.importorskip("torch")
    x, _, dy, _, weight, bias, _ = inputs((64, 192), dtype)
    theirs = [
        torch.tensor(a.astype(np.float32)).to(getattr(torch, dtype.name)).requires_grad_()
        for a in (x, weight, bias)
    ]
    out = torch.nn.functional.layer_norm(theirs[0], (192,), *theirs[1:])
    out.backward(torch.tensor(dy.astype(np.float32)).to(out.dtype))
    at = backend.array
    y, mean, rstd = backend(layernorm.forward, at(x), at(weight), at(bias))
    ours = y, *backend(layernorm.backward, at(dy), at(x), at(weight), at(mean), at(rstd))
    y_64, *statistics = layernorm.forward.text(*wide(x, weight, bias))
    exact = y_64, *layernorm.backward.text(*wide(dy, x, weight), *statistics)
    for mine, their, right in zip(ours, [out, *(t.grad for t in theirs)], exact):
        error = np.abs(mine.astype(np.float64) - right).max()
        assert error <= 2 * np.abs(their.detach().double().numpy() - right).max()
