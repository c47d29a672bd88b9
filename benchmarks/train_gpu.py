"""A whole training step on a GPU: llmlab against plain PyTorch, eager and compiled, side by side.

    python benchmarks/train_gpu.py                                   # 124M at B = 4, 8, 32, 64, then 774M
    python benchmarks/train_gpu.py --cases 124M:64 --systems llmlab compile

A step is forward, backward, clipping by the global norm and AdamW, in bfloat16 with float32 masters, on
random tokens, T = 1024, the vocabulary padded to 50,304. `compile` is torch.compile as it comes, `graphs` in
its mode "reduce-overhead", which replays CUDA graphs. Times are medians of steps between CUDA events. Peak
memory of PyTorch is what its allocator counted as in use, its caching not held against it; llmlab's is
all that the device has less than before, kernels, libraries and graphs included; its tensors stand beside.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import defaultdict
from itertools import pairwise

import cupy
import numpy as np
import torch
from common import copy_bandwidth, write_results
from torch_gpt2 import GPT2, make_step

from llmlab.engine import Engine
from llmlab.kernels import attention
from llmlab.models import gpt2
from llmlab.optim.adamw import AdamW
from llmlab.parameters import Parameters
from llmlab.precision import Precision

V, T = 50304, 1024
MODELS = {"124M": (12, 12, 768), "355M": (24, 16, 1024), "774M": (36, 20, 1280)}
CASES = ["124M:4", "124M:8", "124M:32", "124M:64", "774M:32", "774M:56"]
MODES = {"compile": "default", "graphs": "reduce-overhead"}
SYSTEMS = ["llmlab", "eager", *MODES]
LEARNING_RATE = 1e-4
GIB = 2**30


def batch(B: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, V, (B, T + 1))
    return tokens[:, :-1].astype(np.int32), tokens[:, 1:].astype(np.int32)


def llmlab_step(model: str, B: int, precision: str, policy: str, logits_rows: int):
    """The engine, and a function that does one step without waiting for the device."""
    L, H, C = MODELS[model]
    config = gpt2.Config(V=V, T=T, L=L, H=H, C=C)
    graph = gpt2.build(config, B, logits_rows=logits_rows or None)
    precision = Precision(precision)
    parameters = Parameters(graph.parameters, dtype=precision.compute, device="cuda")
    loss_scale = precision.loss_scale("cuda")
    gpt2.initialise(parameters, config, seed=0)
    engine = Engine(graph, parameters, policy=policy)
    optimizer = AdamW(parameters, weight_decay=0.1, clip=1.0)
    tokens, targets = (cupy.asarray(a) for a in batch(B))

    def step():
        if loss_scale:
            loss = engine.forward_backward(tokens, targets, scale=loss_scale.scale)
            loss_scale.update(optimizer.step(LEARNING_RATE, loss_scale.inverse))
        else:
            loss = engine.forward_backward(tokens, targets)
            optimizer.step(LEARNING_RATE)
        parameters.zero_grad()
        return loss

    return engine, step


def torch_step(model: str, B: int, system: str):
    L, H, C = MODELS[model]
    torch.manual_seed(0)
    step = make_step(GPT2(V, T, L, H, C).cuda(), lr=LEARNING_RATE, autocast=torch.bfloat16,
                     compiled=system in MODES, mode=MODES.get(system, "default"))
    tokens, targets = (torch.from_numpy(a).cuda().long() for a in batch(B))
    return lambda: step(tokens, targets)


def cupy_events(step, steps: int) -> list[float]:
    events = [cupy.cuda.Event() for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    events[-1].synchronize()
    return [cupy.cuda.get_elapsed_time(a, b) for a, b in pairwise(events)]


def torch_events(step, steps: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(events)]


def host_milliseconds(step) -> float:
    """What the host needs to issue one step, the device's queue being empty at its start."""
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    step()
    elapsed = time.perf_counter() - start
    cupy.cuda.Device().synchronize()
    return elapsed * 1e3


def taken_apart(engine: Engine, step) -> dict[str, float]:
    """Milliseconds of one step by op and direction: events round every action, medians over steps."""
    marks: list[tuple[str, cupy.cuda.Event]] = []

    def observer(action, node):
        event = cupy.cuda.Event()
        event.record()
        op = node.op.__name__.rsplit(".", 1)[-1]
        op = f"{op} {node.name.rsplit('.', 1)[-1]}" if op == "linear" else op
        marks.append((f"{op} {action.function}", event))

    totals = defaultdict(list)
    for _ in range(5):
        marks.clear()
        engine.observer = observer
        step()
        engine.observer = None
        cupy.cuda.Device().synchronize()
        sums = defaultdict(float)
        for (kind, start), (_, end) in zip(marks[::2], marks[1::2]):
            sums[kind] += cupy.cuda.get_elapsed_time(start, end)
        for kind, ms in sums.items():
            totals[kind].append(ms)
    return {kind: statistics.median(ms) for kind, ms in totals.items()}


def measure(system: str, model: str, B: int, args: argparse.Namespace) -> dict:
    """One system on one case: milliseconds a step, tokens a second, peak memory."""
    row = {"system": system, "model": model, "B": B, "precision": args.precision}
    if system == "llmlab":
        free, used = cupy.cuda.Device().mem_info[0], cupy.get_default_memory_pool().used_bytes()
        engine, step = llmlab_step(model, B, args.precision, args.policy, args.logits_rows)
        times = cupy_events(step, args.warmup + args.steps)[args.warmup:]
        qkv = cupy.empty((1, T, 3 * MODELS[model][2]), dtype=engine.parameters.dtype)
        row |= {"policy": args.policy, "logits_rows": args.logits_rows,
                "attention": attention.chosen(qkv, MODELS[model][1]),
                "peak_gib": (free - cupy.cuda.Device().mem_info[0]) / GIB,
                "tensors_gib": (cupy.get_default_memory_pool().used_bytes() - used
                                + engine.memory["captured"]) / GIB, "memory": engine.memory,
                "host_ms": statistics.median(host_milliseconds(step) for _ in range(5))}
        if args.apart:
            row["apart_ms"] = taken_apart(engine, step)
        del engine, step
    else:
        torch.cuda.reset_peak_memory_stats()
        step = torch_step(model, B, system)
        times = torch_events(step, args.warmup + args.steps)[args.warmup:]
        row["peak_gib"] = torch.cuda.max_memory_allocated() / GIB
        del step
    release()
    ms = statistics.median(times)
    return row | {"ms": ms, "ms_min": min(times), "ms_max": max(times), "tokens_per_s": B * T / ms * 1e3}



def release() -> None:
    """Give the memory of the last system back to the device."""
    torch.compiler.reset()
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", default=CASES, help="model:B, such as 124M:64")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--policy", default="none", choices=["none", "selective", "full"])
    parser.add_argument("--logits-rows", type=int, default=0, help="rows of logits at a time; 0: all")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--apart", action="store_true", help="also time every kind of kernel")
    parser.add_argument("--name", default="train_gpu", help="name of the file of results")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")

    rows, copy = [], copy_bandwidth()
    release()
    print(f"{'case':>10} {'system':>8} {'ms/step':>9} {'tokens/s':>10} {'peak GiB':>9} {'host ms':>8}")
    for case in args.cases:
        model, B = case.split(":")
        speed = {}
        for system in args.systems:
            try:
                row = measure(system, model, int(B), args)
            except (cupy.cuda.memory.OutOfMemoryError, torch.OutOfMemoryError):
                release()
                rows.append({"system": system, "model": model, "B": int(B), "fits": False})
                print(f"{case:>10} {system:>8}  does not fit", flush=True)
                continue
            rows.append(row)
            speed[system] = row["tokens_per_s"]
            print(f"{case:>10} {system:>8} {row['ms']:9.2f} {speed[system]:10,.0f} {row['peak_gib']:9.2f} "
                  f"{row.get('host_ms', float('nan')):8.2f}", flush=True)
        for peer in MODES.keys() & speed.keys() if "llmlab" in speed else ():
            print(f"{case:>10} llmlab / {peer}: {speed['llmlab'] / speed[peer]:.3f}", flush=True)
        # after each case: compiling may take longer than whoever runs this has time
        write_results(args.name, {"copy_bandwidth_TBps": copy, "rows": rows})
    for row in rows:
        for kind, ms in sorted(row.get("apart_ms", {}).items(), key=lambda item: -item[1]):
            print(f"    {row['model']}:{row['B']} {kind:40} {ms:8.3f} ms")


if __name__ == "__main__":
    main()
