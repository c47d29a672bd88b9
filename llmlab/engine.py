"""Runs the schedules of a graph: forward, forward and backward, with all memory laid out beforehand.

    engine = Engine(graph, parameters, policy="selective", workers=2)
    loss = engine.forward_backward(tokens, targets)      # adds into parameters.gradient

On a CPU, `workers` Python threads each run the schedule on a slice of the batch: NumPy lets go of the
interpreter lock in all that takes time, and elementwise work, which BLAS threads never share, is then
shared too. BLAS itself keeps to one thread as long as such an engine lives. Each worker has an arena and a
gradient buffer of its own, and these are added in fixed order: the bits depend on the number of workers, and
on nothing else.
"""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np

from llmlab import arrays
from llmlab.checkpointing import policies, schedule
from llmlab.graph import Graph
from llmlab.ops.check import ids, integer, scalar
from llmlab.parameters import Parameters
from llmlab.program import Plan
from llmlab.runner import Runner

__all__ = ["Engine", "usable_cores"]

CHUNK = 1 << 17
"""Elements of a gradient that are added up at a time: they stay in the cache until they are set to zero."""


def usable_cores() -> int:
    """CPU cores that this process may use: a sensible number of workers, where the batch is that large."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """Runs a graph on batches of up to its own sizes.

    `policy` is "none", "selective" or "full", or a set of tensors to keep for backward: it changes memory
    and time, never a bit of the results. `workers` is the number of threads on a CPU, at most the batch
    size. `observer`, if set, is called with (action, node) before and after everything that is computed,
    for timing. On a GPU a step becomes one CUDA graph from its second run on, unless `capture` is False or
    an observer is set.

    Nothing here waits for a GPU: losses come back as arrays, and are read when somebody asks for their value.

    >>> from llmlab.models import gpt2
    >>> config = gpt2.Config(V=5, T=4, L=1, H=1, C=8)
    >>> graph = gpt2.build(config, B=2)
    >>> parameters = Parameters(graph.parameters)
    >>> gpt2.initialise(parameters, config, seed=0)
    >>> engine = Engine(graph, parameters)
    >>> tokens = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    >>> round(float(engine.forward_backward(tokens, (tokens + 1) % 5)), 1)   # about log 5
    1.6
    """

    def __init__(self, graph: Graph, parameters: Parameters, policy: str | Collection[str] = "none",
                 workers: int = 1, observer: Callable | None = None, capture: bool = True) -> None:
        _check(graph, parameters, workers, observer)
        self.graph, self.parameters, self.observer = graph, parameters, observer
        self.step = 0
        """Calls of `forward_backward` so far: what dropout draws its masks from. Save it, and restore it."""
        keep = policies.keep(policy, graph)
        loss = graph.nodes[-1]
        self.logits_name, self.loss_name = graph.logits or loss.arguments.get("logits"), loss.results["loss"]
        if self.logits_name is None:
            raise ValueError(f"graph ends in {loss.name!r}, which takes no logits, and graph.logits is None; "
                             f"set graph.logits to the name of the tensor of predictions")
        self.ignore_index = loss.attributes.get("ignore_index", -100)
        self.vocabulary = loss.attributes.get("vocabulary", graph.shape(self.logits_name)[-1])
        rows = -(-graph.sizes["B"] // workers)
        part = dataclasses.replace(graph, sizes={**graph.sizes, "B": rows})
        evaluated = part.evaluation()
        # where the loss does without the logits, the arena has no room for them: the head runs outside of it
        apart = self.logits_name not in loss.arguments.values()
        self._head = graph.nodes[graph.producers[self.logits_name]] if apart else None
        last = graph.activations(self._head.arguments.values()) if apart else [self.logits_name]
        self.plans = {
            "training": Plan(schedule.training(part, keep), part, parameters.dtype),
            "loss": Plan(schedule.inference(evaluated, [self.loss_name]), evaluated, parameters.dtype),
            "logits": Plan(schedule.inference(evaluated, last), evaluated, parameters.dtype),
        }
        self._runners = [
            Runner(self.plans, parameters, own_gradient=w > 0, capture=capture) for w in range(workers)
        ]
        self._pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None
        self._restore_blas = weakref.finalize(self, _single_threaded_blas()) if workers > 1 else None

    # Public doors

    def forward_backward(self, tokens: Any, targets: Any, weight: Any = None, scale: Any = None) -> Any:
        """The loss of a batch; its gradient is added into `parameters.gradient`.

        tokens and targets (b, t) integers, b <= B and t <= T; targets may be -100 where there is nothing to
        learn. The loss is `weight` times the mean over the valid tokens. With several micro-batches in a
        step, let `weight` be a micro-batch's share of the step's valid tokens: then losses and gradients
        add up to those of the whole step. The gradient, and only it, is also multiplied by `scale`, the
        loss scale of float16. Both may be numbers, or arrays of one element, also on the device. After an
        exception the gradient is incomplete: set it to zero.

        Raises TypeError and ValueError that name the argument; then nothing was computed.
        """
        tokens, targets = self._checked(tokens, targets)
        weight = 1.0 if weight is None else weight
        scalar("weight", weight)
        if scale is not None:
            scalar("scale", scale)
        seed = weight if scale is None else weight * scale
        loss = self._run("training", tokens, targets, seed)
        self.step += 1
        return loss * _weight(weight, loss)

    def loss(self, tokens: Any, targets: Any) -> Any:
        """The mean loss over the valid tokens of a batch, forward only, in less memory."""
        return self._run("loss", *self._checked(tokens, targets), 1.0).copy()

    def logits(self, tokens: Any) -> Any:
        """The logits (b, t, V) of a batch: a new array."""
        tokens = self._tokens(tokens)
        runner = self._runners[0]
        out = []
        rows = self.plans["logits"].graph.sizes["B"]
        for start in range(0, len(tokens), rows):
            part = tokens[start:start + rows]
            held = runner.run("logits", part, None, 1.0, self.step, start, self.observer)
            logits = self._run_head(held) if self._head else held[self.logits_name].copy()
            out.append(logits[..., :self.vocabulary])
        return out[0] if len(out) == 1 else np.concatenate(out)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes: the timeline's prediction for a training step, and what is held in arenas and by workers."""
        return {
            "predicted_peak": self.predicted_peak,
            "arena": sum(r.arena.nbytes for r in self._runners),
            "worker_gradients": sum(r.gradient.nbytes for r in self._runners[1:]),
            "inputs": sum(r.input_bytes for r in self._runners),
            "captured": sum(r.captured_bytes for r in self._runners),
        }

    @property
    def predicted_peak(self) -> int:
        """Bytes of activations and their gradients at a training step's peak, as the timeline predicts it."""
        return len(self._runners) * self.plans["training"].peak

    @property
    def bytes_held(self) -> int:
        """Bytes that the engine holds: arenas, inputs, temporaries of CUDA graphs, its workers' gradients."""
        return sum(nbytes for name, nbytes in self.memory.items() if name != "predicted_peak")

    def close(self) -> None:
        """End the worker threads, and give BLAS its own threads back."""
        if self._pool:
            self._pool.shutdown()
            self._restore_blas()

    # How it runs

    def _run(self, what: str, tokens: Any, targets: Any, seed: Any) -> Any:
        """Run a plan on slices of the batch, and add up losses and gradients in the order of the slices."""
        bounds = np.linspace(0, len(tokens), len(self._runners) + 1).astype(int)
        slices = [slice(a, b) for a, b in pairwise(bounds)]
        if len(slices) == 1:
            held = self._runners[0].run(what, tokens, targets, seed, self.step, 0, self.observer)
            return held[self.loss_name]
        valid = [int(np.count_nonzero(targets[s] != self.ignore_index)) for s in slices]
        shares = [n / max(sum(valid), 1) for n in valid]

        def work(w: int) -> Any:
            s = slices[w]
            if s.start == s.stop:
                return 0.0
            held = self._runners[w].run(what, tokens[s], targets[s], seed * shares[w], self.step, s.start,
                                        self.observer if w == 0 else None)
            return held[self.loss_name] * _weight(shares[w], held[self.loss_name])

        try:
            losses = self._share_out(work)
            if what == "training":
                self._share_out(self._add_gradients)
        except BaseException:  # an interrupt too: what was left half done must not enter the next step
            for runner in self._runners[1:]:
                runner.gradient.fill(0)
            raise
        return np.asarray(sum(losses[1:], losses[0]))

    def _run_head(self, held: dict[str, Any]) -> Any:
        """The head's result as a new array, from activations and parameters."""
        head, function, known = self._head, self._head.function("forward"), {**self.parameters, **held}
        reads = {name: known[tensor] for name, tensor in head.arguments.items()}
        return function.call(**reads, **head.attributes_of(function))

    def _share_out(self, work: Callable[[int], Any]) -> list[Any]:
        """work(0) here and work(1), work(2)... in the pool; their results in order."""
        others = [self._pool.submit(work, w) for w in range(1, len(self._runners))]
        try:
            first = work(0)
        finally:
            wait(others)
        return [first, *(future.result() for future in others)]

    def _add_gradients(self, w: int) -> None:
        """In a worker's share of the elements, add the workers' gradients to the total and zero them."""
        total = self.parameters.gradient
        bounds = np.linspace(0, total.size, len(self._runners) + 1).astype(int)
        for start in range(bounds[w], bounds[w + 1], CHUNK):
            chunk = slice(start, min(start + CHUNK, bounds[w + 1]))
            for runner in self._runners[1:]:
                total[chunk] += runner.gradient[chunk]
                runner.gradient[chunk] = 0

    def _checked(self, tokens: Any, targets: Any) -> tuple[Any, Any]:
        """Tokens and targets as arrays (b, t) that fit, or an error that names what does not."""
        tokens = self._tokens(tokens)
        targets = _integers("targets", targets)
        ids("targets", targets, self.vocabulary, allowed=self.ignore_index)
        if targets.shape != tokens.shape:
            raise ValueError(f"targets has shape {targets.shape}, needs that of tokens, {tokens.shape}")
        return tokens, targets

    def _tokens(self, tokens: Any) -> Any:
        B, T = self.graph.sizes["B"], self.graph.sizes["T"]
        tokens = _integers("tokens", tokens)
        ids("tokens", tokens, self.vocabulary)
        if tokens.ndim != 2 or not (1 <= tokens.shape[0] <= B and 1 <= tokens.shape[1] <= T):
            raise ValueError(f"tokens has shape {tokens.shape}, needs to be (b, t) with 1 <= b <= {B} "
                             f"and 1 <= t <= {T}")
        return tokens


def _check(graph: Graph, parameters: Parameters, workers: int, observer: Callable | None) -> None:
    """Refuse arguments of an engine that do not go together."""
    B = graph.sizes["B"]
    integer("workers", workers)
    if not 1 <= workers <= B:
        raise ValueError(f"workers is {workers}, needs to lie in [1, {B}], B being the largest batch")
    if workers > 1 and parameters.device != "cpu":
        raise ValueError(f"workers is {workers}, needs to be 1 on a GPU, which shares out work itself")
    if observer is not None and not callable(observer):
        raise TypeError(f"observer is {observer!r}, needs to be a function of (action, node), or None")
    for name, spec in graph.parameters.items():
        if name not in parameters or parameters[name].shape != spec.shape:
            raise ValueError(f"parameters has no {name!r} of shape {spec.shape}; "
                             f"it was made for another graph")


def _integers(name: str, values: Any) -> Any:
    """The values as an array of integers, or an error that names them."""
    if not arrays.is_cupy(values):
        try:
            values = np.asarray(values)
        except ValueError:
            raise ValueError(f"{name} is ragged, needs rows of one length; pad them, with -100 in targets "
                             f"for what is not to be learnt") from None
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {values.dtype}, needs whole numbers")
    return values


def _weight(weight: Any, loss: Any) -> Any:
    """A weight in the dtype of the loss, so that no product is promoted."""
    return weight.astype(loss.dtype).reshape(()) if hasattr(weight, "astype") else loss.dtype.type(weight)


def _single_threaded_blas() -> Callable[[], None]:
    """Leave one thread to BLAS, whose idle threads spin on cores that workers need. Returns the way back."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas").restore_original_limits
