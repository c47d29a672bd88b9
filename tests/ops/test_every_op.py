"""What must hold of every op: its gradient is right, its precision is kept, its buffers are used."""

import inspect
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab import gradcheck
from llmlab.arrays import bfloat16, float16, float32, float64

# One rounding at the end: half a unit in the last place, relative to the element; and what float32
# arithmetic leaves, relative to the tensor.
ROUNDING = {bfloat16: 2.0**-8, float16: 2.0**-11}
ARITHMETIC = 2e-5

PARAMETERS = {"weight", "bias", "branch_bias", "wte", "wpe"}
SHAPE = {"B": 2, "T": 5, "C": 6}


def names(function):
    """What a function takes, and what it returns."""
    parameters = inspect.signature(function).parameters.values()
    return ([p.name for p in parameters if p.kind is not p.KEYWORD_ONLY],
            [p.name for p in parameters if p.kind is p.KEYWORD_ONLY])


def call(function, available, **buffers):
    """The results of a function by name, given all that is available by name."""
    takes, gives = names(function)
    values = function(**{n: available[n] for n in takes if n in available}, **buffers)
    return dict(zip(gives, values if isinstance(values, tuple) else (values,), strict=True))


def cast(arguments, dtype):
    return {n: a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind in "fV" else a
            for n, a in arguments.items()}


def upstream(case, outputs, dtype=None):
    """A random dy for every output y that backward takes one for."""
    generator = np.random.default_rng(1)
    takes, _ = names(case.op.backward)
    found = {}
    for name, value in outputs.items():
        if f"d{name}" in takes:
            dy = np.asarray(generator.standard_normal(value.shape))
            found[f"d{name}"] = dy.astype(dtype or value.dtype)
    return found


def forward_backward(case, arguments, dtype):
    """All results of both functions with the arguments rounded to `dtype`."""
    arguments = cast(arguments, dtype)
    outputs = call(case.op.forward, arguments)
    dys = upstream(case, outputs)
    return outputs, call(case.op.backward, {**arguments, **outputs, **dys}), dys


def torch_forward_backward(case, arguments, dtype, dys):
    import torch

    tensors = {n: torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a
               for n, a in cast(arguments, dtype).items()}
    leaves = {n: t.requires_grad_() for n, t in tensors.items()
              if isinstance(t, torch.Tensor) and t.is_floating_point()}
    outputs = case.torch(**tensors)
    loss = sum((outputs[n] * torch.from_numpy(dys[f"d{n}"].astype(dtype))).sum() for n in outputs)
    loss.backward()
    gradients = {f"d{n}": t.grad.numpy() for n, t in leaves.items()}
    return {n: t.detach().numpy() for n, t in outputs.items()}, gradients


def make(case, seed=0, **shape):
    return case.arguments(np.random.default_rng(seed), **{**SHAPE, **shape})


def test_gradients_equal_differences(case):
    assert gradcheck.check_op(case.op, make(case)).error <= 1e-6


@settings(max_examples=15)
@given(B=st.integers(1, 3), T=st.integers(1, 9), C=st.integers(1, 17), seed=st.integers(0, 99))
def test_float64_equals_torch(case, B, T, C, seed):
    arguments = make(case, seed, B=B, T=T, C=C)
    if "targets" in arguments:
        arguments["targets"][0, 0] = 0  # torch's mean over no valid target is NaN
    outputs, gradients, dys = forward_backward(case, arguments, float64)
    expected, expected_gradients = torch_forward_backward(case, arguments, float64, dys)
    for name, value in {**expected, **expected_gradients}.items():
        got = {**outputs, **gradients}[name]
        assert got.dtype == float64
        assert np.abs(got - value).max() <= 1e-10 * max(1, np.abs(value).max()), name


@pytest.mark.parametrize("shape", [{"B": 2, "T": 64, "C": 64}, {"B": 4, "T": 128, "C": 96}], ids=str)
def test_float32_errs_at_most_twice_as_much_as_torch(case, shape):
    arguments = cast(make(case, **shape), float32)  # both start from the same float32 numbers
    outputs, gradients, dys = forward_backward(case, arguments, float32)
    exact_outputs = call(case.op.forward, cast(arguments, float64))
    exact = {**exact_outputs,
             **call(case.op.backward, {**cast(arguments, float64), **exact_outputs, **cast(dys, float64)})}
    torch_outputs, torch_gradients = torch_forward_backward(case, arguments, float32, dys)
    for name, value in {**torch_outputs, **torch_gradients}.items():
        got = {**outputs, **gradients}[name]
        assert got.dtype == float32
        theirs = gradcheck.relative_error(value, exact[name])
        ours = gradcheck.relative_error(got, exact[name])
        assert ours <= 2 * theirs + 1e-7, f"{name}: ours {ours:.1e}, torch {theirs:.1e}"


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=lambda d: d.name)
def test_low_precision_rounds_once(case, dtype):
    arguments = cast(make(case, T=16, C=32), dtype)
    outputs, gradients, dys = forward_backward(case, arguments, dtype)
    wide = {n: a.astype(float64) if isinstance(a, np.ndarray) and a.dtype.kind in "fV" else a
            for n, a in {**arguments, **outputs, **dys}.items()}
    # y = LayerNorm(r) reads r as it is stored, and so does the exact value it is compared with
    exact = call(case.op.forward, wide)
    if case.name == "residual_layernorm":
        r = outputs["r"].astype(float64)
        zero, no_bias = np.zeros_like(r), np.zeros_like(wide["bias"])
        exact = {"r": exact["r"], **{n: v for n, v in call(case.op.forward, {
            **wide, "x": r, "branch": zero, "branch_bias": no_bias}).items() if n != "r"}}
    exact |= call(case.op.backward, wide)
    for name, got in {**outputs, **gradients}.items():
        rounded = got.dtype == dtype
        assert rounded or got.dtype == float32, name
        value = exact[name]
        scale = max(1e-3, np.sqrt((value**2).mean()))
        allowed = ROUNDING[dtype] * rounded * np.abs(value) + ARITHMETIC * scale
        assert (np.abs(got.astype(float64) - value) <= allowed).all(), name


@pytest.mark.parametrize("dtype", [float64, float32, bfloat16, float16], ids=lambda d: d.name)
def test_buffers_are_used_and_parameter_gradients_added_to(case, dtype):
    arguments = cast(make(case), dtype)
    outputs, gradients, dys = forward_backward(case, arguments, dtype)
    buffers = {n: np.full_like(v, 7) for n, v in outputs.items()}
    again = call(case.op.forward, arguments, **buffers)
    for name, value in outputs.items():
        assert again[name] is buffers[name]
        np.testing.assert_array_equal(again[name], value)

    buffers = {n: np.full_like(v, 7) for n, v in gradients.items()}
    again = call(case.op.backward, {**arguments, **outputs, **dys}, **buffers)
    for name, value in gradients.items():
        assert again[name] is buffers[name]
        expected = 7 + value if name[1:] in PARAMETERS else value
        np.testing.assert_allclose(
            again[name].astype(float64), expected.astype(float64), rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=lambda d: d.name)
def test_results_may_lie_over_the_arguments_named(case, dtype):
    arguments = cast(make(case), dtype)
    outputs, gradients, dys = forward_backward(case, arguments, dtype)
    for function, available, expected in ((case.op.forward, arguments, outputs),
                                          (case.op.backward, {**arguments, **outputs, **dys}, gradients)):
        takes, gives = names(function)
        for name, over in getattr(case.op, "IN_PLACE", {}).items():
            for argument in over:
                if name in gives and argument in takes:
                    copies = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in available.items()}
                    got = call(function, copies, **{name: copies[argument]})
                    for n, value in expected.items():
                        np.testing.assert_array_equal(got[n], value, err_msg=f"{n}, {name} over {argument}")


def test_shared_results_may_share_a_buffer(case):
    arguments = cast(make(case), float32)
    outputs, gradients, dys = forward_backward(case, arguments, float32)
    for name, other in getattr(case.op, "SHARED", {}).items():
        buffer = np.full_like(gradients[name], 7)
        got = call(case.op.backward, {**arguments, **outputs, **dys}, **{name: buffer, other: buffer})
        for n, value in gradients.items():
            np.testing.assert_array_equal(got[n], value, err_msg=n)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=lambda d: d.name)
def test_arguments_stay_as_they_are(case, dtype):
    arguments = cast(make(case), dtype)
    before = {n: a.copy() for n, a in arguments.items() if isinstance(a, np.ndarray)}
    outputs, _, dys = forward_backward(case, arguments, dtype)
    kept = {n: a.copy() for n, a in {**outputs, **dys}.items()}
    call(case.op.backward, {**arguments, **outputs, **dys})
    for name, value in {**before, **kept}.items():
        np.testing.assert_array_equal({**arguments, **outputs, **dys}[name], value, err_msg=name)


def test_views_are_read_by_their_strides(case):
    arguments = make(case)
    outputs, gradients, dys = forward_backward(case, arguments, float64)

    def strided(a):
        if not isinstance(a, np.ndarray) or a.ndim == 0:
            return a
        spread = np.full((*a.shape[:-1], 2 * a.shape[-1]), 9, a.dtype)
        spread[..., ::2] = a
        return spread[..., ::2]

    views = {n: strided(a) for n, a in {**arguments, **outputs, **dys}.items()}
    got = {**call(case.op.forward, views), **call(case.op.backward, views)}
    for name, value in {**outputs, **gradients}.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_result_buffer_with_gaps_is_refused(case):
    arguments = make(case)
    outputs, _, _ = forward_backward(case, arguments, float64)
    name, value = next((n, v) for n, v in outputs.items() if v.ndim > 1) if any(
        v.ndim > 1 for v in outputs.values()) else ("lse", outputs["lse"])
    gaps = np.empty((*value.shape[:-1], 2 * value.shape[-1]))[..., ::2]
    with pytest.raises(ValueError, match=f"{name} is not C-contiguous"):
        call(case.op.forward, arguments, **{name: gaps})


@pytest.mark.parametrize("shape", [{"B": 0}, {"T": 0}], ids=str)
def test_empty_input_gives_empty_results(case, shape):
    arguments = make(case, **shape)
    outputs, gradients, _ = forward_backward(case, arguments, float32)
    for name, value in {**outputs, **gradients}.items():
        assert np.isfinite(value).all(), name
        if value.size:
            np.testing.assert_array_equal(value, 0, err_msg=name)


def test_a_dtype_of_its_own_is_refused_by_name(case):
    arguments = make(case)
    floats = [n for n, a in arguments.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    if len(floats) > 1:
        with pytest.raises(TypeError, match=f"{floats[1]} has dtype float32, needs float64"):
            case.op.forward(**{**arguments, floats[1]: arguments[floats[1]].astype(float32)})
    with pytest.raises(TypeError, match=f"{floats[0]} is a list"):
        case.op.forward(**{**arguments, floats[0]: arguments[floats[0]].tolist()})
    with pytest.raises(TypeError, match=f"{floats[0]} has dtype int64"):
        case.op.forward(**{**arguments, floats[0]: np.zeros_like(arguments[floats[0]], np.int64)})


def test_an_absent_argument_is_refused_by_name(case):
    """None only where the signature says so; else the text would fail far inside, or give NaN."""
    arguments = make(case)
    outputs, _, dys = forward_backward(case, arguments, float64)
    available = {**arguments, **outputs, **dys}
    for function in (case.op.forward, case.op.backward):
        needed = [p.name for p in inspect.signature(function).parameters.values()
                  if p.default is p.empty and "None" not in str(p.annotation)]
        given = {n: available[n] for n in names(function)[0] if n in available}
        for name in needed:
            with pytest.raises(TypeError, match=f"^{name} is None, needs"):
                function(**{**given, name: None})
            with pytest.raises(TypeError, match=f"missing a required argument: '{name}'"):
                function(**{n: a for n, a in given.items() if n != name})


def test_threads_do_not_meet(case):
    """Scratch belongs to a thread: two at once give what each gives alone."""
    inputs = [make(case, seed, B=4, T=32, C=32) for seed in (0, 1)]
    alone = [forward_backward(case, arguments, float32)[:2] for arguments in inputs]
    wrong = []

    def work(k):
        for _ in range(20):
            for got, expected in zip(forward_backward(case, inputs[k], float32)[:2], alone[k]):
                wrong.extend(n for n, v in expected.items() if not np.array_equal(got[n], v))

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
