"""Launches ``layernorm.cu`` for ``llmlab.ops.layernorm``, whose door has checked shapes and dtypes."""

from __future__ import annotations

from llmlab.arrays import Array, float32, namespace
from llmlab.kernels import guards, row
from llmlab.kernels.column_sum import add_partials, column_sum
from llmlab.kernels.loader import load
from llmlab.kernels.signature import Out, cuda_type, null

FORWARD_THREADS = 128
WIDE_THREADS = 1024
_STATIC_SHARED = 768  # bytes: where teams of several warps add up
# What a thread may hold of a row, in words and in elements: alone, beside two sums of each, beside three.
FORWARD_ROOM, BACKWARD_ROOM, BACKWARD_ROOM_OF_THREE = (32, 64), (16, 32), (16, 24)


def forward(
    x: Array,
    weight: Array,
    bias: Array,
    eps: float = 1e-5,
    *,
    y: Array | None = None,
    mean: Array | None = None,
    rstd: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Launches ``layernorm_forward``, or the wide one for rows that registers do not hold.

    Returns y, and mean and rstd in float32.
    """
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    mean = guards.result("mean", mean, x.shape[:-1], float32, like=x)
    rstd = guards.result("rstd", rstd, x.shape[:-1], float32, like=x)
    if x.size:
        x, weight, bias = map(guards.contiguous, (x, weight, bias))
        forward_rows(
            "layernorm",
            "layernorm_forward",
            x,
            (Out(y), Out(mean), Out(rstd), x, weight, bias),
            eps,
            y,
            x,
            weight,
            bias,
        )
    return y, mean, rstd


def recompute(
    x: Array,
    weight: Array,
    bias: Array,
    mean: Array,
    rstd: Array,
    *,
    y: Array | None = None,
) -> Array:
    """Launches ``layernorm_recompute``: y as forward wrote it, bit for bit, from its mean and rstd."""
    y = guards.result("y", y, x.shape, x.dtype, like=x)
    if x.size:
        x, weight, bias, mean, rstd = map(guards.contiguous, (x, weight, bias, mean, rstd))
        forward_rows(
            "layernorm",
            "layernorm_recompute",
            x,
            (Out(y), x, weight, bias, mean, rstd),
            None,
            y,
            x,
            weight,
            bias,
        )
    return y


def backward(
    dy: Array,
    x: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
    *,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Launches `backward_rows`; returns dx, and dweight and dbias in float32, added to what is given."""
    dx = guards.result("dx", dx, x.shape, x.dtype, like=x)
    dweight = gradient(dweight, weight)
    dbias = gradient(dbias, weight)
    if x.size:
        dy, x, weight, mean, rstd = map(guards.contiguous, (dy, x, weight, mean, rstd))
        backward_rows(dx, None, dy, x, weight, mean, rstd, [dweight, dbias])
    return dx, dweight, dbias


def gradient(given: Array | None, parameter: Array) -> Array:
    """The buffer that the gradient of a parameter is added to: zeros if none is given."""
    if given is None:
        return namespace(parameter).zeros(parameter.shape, float32)
    return guards.result("a parameter's gradient", given, parameter.shape, float32, like=parameter)


def forward_rows(
    file: str, name: str, x: Array, args: tuple, eps: float | None, *in_packs: Array | None
) -> None:
    """Launch a forward kernel: rows in registers if they fit, else a block for each row."""
    C = x.shape[-1]
    N = x.size // C
    E = row.pack_size(C, *in_packs)
    plan = row.plan(C, E, x.itemsize, *FORWARD_ROOM)
    tail = () if eps is None else (eps,)
    if plan is None:
        kernel = load(file).get_function(f"wide_{name}<{cuda_type(x.dtype)}, {E}>")
        kernel((N,), (WIDE_THREADS,), (*args, C, *tail))
        return
    teams = max(1, min(FORWARD_THREADS // plan.threads, N))
    threads, blocks = teams * plan.threads, guards.ceil_divide(N, teams)
    kernel = load(file).get_function(f"{name}<{cuda_type(x.dtype)}, {plan.E}, {plan.K}, {plan.W}>")
    kernel((blocks,), (threads,), (*args, N, C, *tail))


def backward_rows(
    dx: Array,
    dr: Array | None,
    dy: Array,
    x: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
    gradients: list[Array],
) -> None:
    """Launch the backward kernels: dx, and gradients += dweight, dbias and, with a third, the sum of dx."""
    C = x.shape[-1]
    N = x.size // C
    E = row.pack_size(C, dx, dr, dy, x, weight)
    sums = len(gradients)
    plan = row.plan(C, E, x.itemsize, *(BACKWARD_ROOM if sums == 2 else BACKWARD_ROOM_OF_THREE))
    if plan is None:
        _wide_backward(dx, dr, dy, x, weight, mean, rstd, gradients, N, C, E)
        return
    warps, per_multiprocessor, most_stages = _backward_shape(plan)
    row_bytes = plan.shared_bytes(x.itemsize)
    slot_bytes = row_bytes * (2 if dr is None else 3)
    sums_bytes = 4 * sums * plan.K * plan.E * (plan.threads + 4)  # of a team, laid down at the end
    limit = row.shared_limit(x, per_multiprocessor) - _STATIC_SHARED - row_bytes  # beside the weights
    teams = max(1, min(warps // plan.W, N, limit // max(2 * slot_bytes, sums_bytes)))
    stages = max(2, min(most_stages, limit // (teams * slot_bytes)))
    shared = max(row_bytes + stages * teams * slot_bytes, teams * sums_bytes)
    blocks = min(guards.multiprocessors(x) * per_multiprocessor, guards.ceil_divide(N, teams))
    partials = namespace(x).empty((blocks, sums, C), float32)
    instance = f"{cuda_type(x.dtype)}, {plan.E}, {plan.K}, {plan.W}, {stages}"
    if dr is None and sums == 2:
        kernel = load("layernorm").get_function(f"layernorm_backward<{instance}>")
        args = (Out(dx), Out(partials), dy, x, weight, mean, rstd, N, C)
    else:
        flags = f"{_bool(dr is not None)}, {_bool(sums == 3)}"
        kernel = load("residual_layernorm").get_function(f"residual_layernorm_backward<{instance}, {flags}>")
        args = (Out(dx), Out(partials), null if dr is None else dr, dy, x, weight, mean, rstd, N, C)
    kernel((blocks,), (teams * plan.threads,), args, shared_mem=shared)
    add_partials(partials, *gradients)


def _backward_shape(plan: row.Plan) -> tuple[int, int, int]:
    """Warps of a block, blocks that share a multiprocessor, and stages of the ring: the fastest on an H200.

    512 threads a multiprocessor may have 128 registers each, which the sums need. Teams of one warp never
    wait for each other; those of two do, and fare better in two blocks.
    """
    if plan.W == 1:
        return 12, 1, 2
    return (8, 2, 2) if plan.W == 2 else (16, 1, 3)


def _wide_backward(dx, dr, dy, x, weight, mean, rstd, gradients, N: int, C: int, E: int) -> None:
    xp, kernels, T = namespace(x), load("layernorm"), cuda_type(x.dtype)
    shifts = xp.empty(N, float32)
    kernels.get_function(f"wide_layernorm_shift<{T}, {E}>")((N,), (WIDE_THREADS,), (Out(shifts), x, mean, C))
    # the sums first: dx may be written over dy
    tiles = guards.ceil_divide(C, 256 * E)
    groups = min(N, guards.ceil_divide(8 * guards.multiprocessors(x), tiles), 65535)
    partials = xp.empty((groups, 2, C), float32)
    column_sums = kernels.get_function(f"wide_layernorm_column_sums<{T}, {E}>")
    column_sums((tiles, groups), (256,), (Out(partials), shifts, dy, x, mean, rstd, N, C))
    add_partials(partials, *gradients[:2])
    kernel = kernels.get_function(f"wide_layernorm_backward<{T}, {E}, {_bool(dr is not None)}>")
    kernel((N,), (WIDE_THREADS,), (Out(dx), shifts, null if dr is None else dr, dy, x, weight, mean, rstd, C))
    if len(gradients) == 3:
        column_sum(gradients[2], dx.reshape(N, C))


def _bool(value: bool) -> str:
    return "true" if value else "false"
