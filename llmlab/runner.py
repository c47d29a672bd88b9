"""One worker's memory, and the programs that run in it.

A runner owns an arena, the inputs and a gradient buffer, all of fixed address, and binds a program for
every shape of batch that it meets. Nothing it does waits for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from llmlab import arrays
from llmlab.parameters import Parameters, aligned_zeros
from llmlab.program import Plan, Program, bind, loss_gradient

__all__ = ["Runner"]

_PROGRAMS = 16
"""Kept at a time: sampling meets a new length with every token."""


class Runner:
    """Runs plans on batches no larger than theirs; with `capture`, and on a GPU, as CUDA graphs."""

    def __init__(
        self, plans: dict[str, Plan], parameters: Parameters, own_gradient: bool, capture: bool,
    ) -> None:
        self.plans, self.parameters = plans, parameters
        device = parameters.device
        self.capture = capture and device == "cuda"
        self.arena = aligned_zeros(max(p.arena_bytes for p in plans.values()), np.dtype(np.uint8), device)
        self.gradient, self.grad = parameters.gradient, parameters.grad
        if own_gradient:
            self.gradient, self.grad = parameters.gradient_like()
        graph = plans["training"].graph
        self.inputs = {
            name: aligned_zeros(math.prod(graph.shape(name)), graph.dtype(name, parameters.dtype), device)
            for name in graph.inputs
        }
        self.seed_name = loss_gradient(graph)
        self.inputs[self.seed_name] = aligned_zeros(1, arrays.accumulation_dtype(parameters.dtype), device)
        # an overflow in float16 is no accident: it is how the loss scale finds out that it is too large
        low = parameters.dtype == arrays.float16
        self.expected = {"over": "ignore", "invalid": "ignore"} if low else {}
        self.uploads = {name: _Upload(self.inputs[name]) for name in ("tokens", "targets")}
        self.programs: dict[tuple, tuple[Program, dict[str, Any]]] = {}

    @property
    def input_bytes(self) -> int:
        """Bytes of the inputs."""
        return sum(x.nbytes for x in self.inputs.values())

    @property
    def captured_bytes(self) -> int:
        """Bytes that the temporaries of CUDA graphs hold."""
        return sum(program.nbytes for program, _ in self.programs.values())

    def run(self, what: str, tokens: Any, targets: Any, seed: Any, step: int, row: int,
            observer: Callable | None) -> dict[str, Any]:
        """Run a program on a slice of a batch; returns what is alive at its end, until the next run.

        `seed` is the gradient of the loss by itself, `step` what dropout draws from, `row` the place of the
        slice.
        """
        program, inputs = self._program(what, *tokens.shape, row)
        self.uploads["tokens"](inputs["tokens"], tokens)
        if targets is not None:
            self.uploads["targets"](inputs["targets"], targets)
        inputs[self.seed_name][...] = seed.reshape(()) if hasattr(seed, "reshape") else seed
        if "step" in inputs:
            inputs["step"][...] = step
        with np.errstate(**self.expected):
            program.run(observer)
        return program.outputs

    def _program(self, what: str, b: int, t: int, row: int) -> tuple[Program, dict[str, Any]]:
        key = (what, b, t, row)
        found = self.programs.pop(key, None) or self._bind(what, b, t, row)
        self.programs[key] = found  # the last in order is the last used
        if len(self.programs) > _PROGRAMS:
            del self.programs[next(iter(self.programs))]
        return found

    def _bind(self, what: str, b: int, t: int, row: int) -> tuple[Program, dict[str, Any]]:
        plan = self.plans[what]
        sizes = {**plan.graph.sizes, "B": b, "T": t}
        shapes = {name: plan.graph.shape(name, sizes) for name in plan.graph.inputs} | {self.seed_name: ()}
        inputs = {name: self.inputs[name][:math.prod(s)].reshape(s) for name, s in shapes.items()}
        external = {**self.parameters, **inputs}
        program = bind(plan, self.arena, sizes, external, self.grad, row, self.capture and what != "logits")
        return program, inputs


class _Upload:
    """Copies token ids into an input; to a GPU through pinned memory, without a wait."""

    _SLOTS = 4  # so many batches may be on their way before the host waits for the first

    def __init__(self, buffer: Any) -> None:
        self.slots: list[tuple[Any, Any]] = []
        self.turn = 0
        if arrays.is_cupy(buffer):
            import cupy
            import cupyx

            self.slots = [
                (cupyx.empty_pinned(buffer.shape, buffer.dtype), cupy.cuda.Event(disable_timing=True))
                for _ in range(self._SLOTS)
            ]

    def __call__(self, buffer: Any, values: Any) -> None:
        if not self.slots or arrays.is_cupy(values):
            buffer[...] = values
            return
        pinned, copied = self.slots[self.turn % self._SLOTS]
        self.turn += 1
        copied.synchronize()  # the copy of four batches ago
        pinned[:values.size] = values.reshape(-1)
        buffer.data.copy_from_host_async(pinned.ctypes.data, buffer.nbytes)
        copied.record()
