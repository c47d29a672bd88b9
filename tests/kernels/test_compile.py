"""Every shipped kernel compiles for the GPUs in use, and none spills registers. No GPU is needed."""

import itertools
import re

import pytest

from llmlab.kernels import attention, nvrtc, signature, source

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings and nvidia-cuda-nvrtc")


def of_attention(name: str) -> list[str]:
    """What the launcher asks for where heads fill its tiles, or all but 8 numbers of them.

    All other head sizes need fewer registers: of the 16, none but these has ever spilled. With 8 less, the
    last product is half filled, and what does not exist is asked for. The dtypes of 16 bits differ in the
    names of instructions alone and take the same registers: of float16, the widest heads are enough.
    """
    widths = list(attention._TILES[name])
    heads = [("__nv_bfloat16", width - less) for width in widths for less in (0, 8)]
    heads += [("__half", max(widths))]
    return [one.instance for dtype, D in heads for one in attention._passes(name, dtype, D)]


# Instantiations that launchers ask for: of attention by the launcher's own table; of the others some common
# ones and, where threads hold rows, those that hold the most. {T} stands for each dtype, {?} for false and
# true, {1|2} for 1 and 2.
INSTANCES = {
    "adamw": ["sum_squares<{1|4}>", "adamw_update<{T}, {1|4}>"],
    "attention": of_attention("mma"),
    "attention_hopper": of_attention("wgmma"),
    "attention_scalar": [one.instance for D in (7, 256) for one in attention._passes("scalar", "{T}", D)],
    "column_sum": ["column_sums<{T}, {1|4}>"],
    "cross_entropy": [
        "cross_entropy_forward<{T}, {int|long long}, {?}>", "cross_entropy_backward<{T}, int, {?}>",
        "cross_entropy_forward_backward<{T}, int, {?}>", "resident_forward_backward<{T}, int>",
        "count_valid<{int|long long}>",
    ],
    "dropout": ["dropout<{T}, {?}>"],
    "embedding": [
        "embedding_forward<{T}, {int|long long}, 4>", "sum_runs<{T}, {1|4}>",
        "sum_spanning_runs<{1|8}>", "sum_positions<{T}, 4>", "count_tokens<{int|long long}>",
        "gather_places<int>", "order_places<int>",
    ],
    "layernorm": [
        "layernorm_forward<{T}, 4, 4, {1|2}>", "layernorm_forward<__nv_bfloat16, 8, {3|8}, {1|4}>",
        "layernorm_forward<__nv_bfloat16, 1, 32, 1>", "layernorm_backward<__nv_bfloat16, 1, 16, 1, 2>",
        "layernorm_recompute<{T}, 4, 4, 1>", "layernorm_backward<{T}, 4, 4, {1|2}, 3>",
        "layernorm_backward<__nv_bfloat16, 8, {3|4}, {1|4}, 3>",
        "wide_layernorm_forward<{T}, {1|4}>", "wide_layernorm_recompute<{T}, 4>",
        "wide_layernorm_shift<{T}, 4>",
        "wide_layernorm_column_sums<{T}, 4>", "wide_layernorm_backward<{T}, 4, {?}>",
    ],
    "layernorm_ladder": [
        "thread_forward<{T}>", "warp_forward<{T}>", "register_forward<{T}, 3>", "warp_dx<{T}>",
        "column_sums_of_dy<{T}>", "fused_backward<{T}, {3|6}>",
    ],
    "linear": ["add_bias<{T}, {1|4}>"],
    "residual_layernorm": [
        "residual_layernorm_forward<{T}, 4, 4, {1|2}>",
        "residual_layernorm_forward<__nv_bfloat16, 8, {3|8}, 1>",
        "residual_layernorm_backward<__nv_bfloat16, 1, 16, 1, 2, true, true>",
        "residual_layernorm_backward<{T}, 4, 4, 1, 2, {?}, {?}>",
        "residual_layernorm_backward<__nv_bfloat16, 8, 3, {1|2}, 2, {?}, true>",
        "wide_residual_layernorm_forward<{T}, {1|4}>",
    ],
    "gelu": ["gelu_forward<{T}, {?}, {?}>", "gelu_backward<{T}, {?}, {?}>"],
    "residual": ["residual_forward<{T}, {?}>"],
    "softmax": [
        "softmax_forward<{T}, 4, {?}, {?}>", "softmax_backward<{T}, 4, {?}, {?}>",
        "softmax_forward_long<{T}, {?}>", "softmax_backward_long<{T}, {?}>",
    ],
}  # fmt: skip

# Files for one architecture alone; the others are compiled for a few.
ARCHITECTURES = {"attention_hopper": ["sm_90a"]}
KERNELS = [
    (file.stem, architecture)
    for file in sorted(source.FOLDER.glob("*.cu"))
    for architecture in ARCHITECTURES.get(file.stem, ["sm_80", "sm_90", "sm_100"])
]

# What is known to spill, and why that is the better choice: kernel -> bytes stored and loaded.
# attention by mma: dk and dv of 128 columns take 128 registers of 255, keys and values 64; a few of them wait
# in memory. Nothing is smaller than 16 keys a warp and 16 queries a step; tiles of 32 queries spill as much.
# A head of 120 takes the same room, and tells what only fills it up from what is there.
SPILLS_ALLOWED: dict[str, int] = {
    f"_Z28attention_backward_key_valueI{dtype}Li{D}ELi1ELi4ELi64ELi16ELi1EEvPKT_S3_PKfPS1_iiif": size
    for dtype in ("13__nv_bfloat16", "6__half")
    for D, size in ((128, 24), (120, 104))
}

ALL = ("float", "__nv_bfloat16", "__half")


def expand(pattern: str, dtypes: tuple[str, ...]) -> list[str]:
    """
    >>> expand("f<{T}, {?}>", ("float",))
    ['f<float, false>', 'f<float, true>']
    """
    pattern = pattern.replace("{T}", "{" + "|".join(dtypes) + "}").replace("{?}", "{false|true}")
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = [part.split("|") if k % 2 else [part] for k, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def test_every_template_is_listed():
    for file in source.FOLDER.glob("*.cu"):
        names = signature.kernel_names(source.with_includes(file.read_text(), file.name))
        templates = {name for name, is_template in names.items() if is_template}
        listed = {pattern.partition("<")[0] for pattern in INSTANCES.get(file.stem, [])}
        assert templates == listed, f"INSTANCES and {file.name} differ in {templates ^ listed}"


@pytest.mark.parametrize(("name", "architecture"), KERNELS)
def test_compiles_without_spills(name, architecture):
    dtypes = ALL if architecture.startswith("sm_90") else ("__nv_bfloat16",)
    expressions = [
        expression for pattern in INSTANCES.get(name, []) for expression in expand(pattern, dtypes)
    ]
    code = source.with_includes(source.read(f"{name}.cu"), f"{name}.cu")
    usages = nvrtc.compile(code, tuple(expressions), architecture)
    assert len(usages) >= len(expressions)
    spilled = {usage.kernel: usage.spills for usage in usages if usage.spills}
    assert spilled == {
        kernel: size for kernel, size in spilled.items() if size <= SPILLS_ALLOWED.get(kernel, 0)
    }


def test_spills_are_seen():
    code = """
    extern "C" __global__ void __launch_bounds__(1024, 2) greedy(float* y, const float* x) {
      float v[64];
      #pragma unroll
      for (int k = 0; k < 64; k++) v[k] = x[k * 1024 + threadIdx.x];
      __syncthreads();
      #pragma unroll
      for (int k = 0; k < 64; k++) y[k * 1024 + threadIdx.x] = v[k] * v[(k * 7) % 64];
    }"""
    (usage,) = nvrtc.compile(code, (), "sm_90")
    assert usage.spills > 0


def test_errors_name_the_file_and_line():
    with pytest.raises(ValueError, match=r"mine\.cu\(2\): error"):
        nvrtc.compile(source.with_includes("\nint x = y;", "mine.cu"), ())
