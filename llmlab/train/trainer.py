"""One run's model, optimizer and data, and where it stands: a step, an evaluation, the whole state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from llmlab import arrays
from llmlab.data.dataset import Dataset
from llmlab.engine import Engine, usable_cores
from llmlab.errors import UserError
from llmlab.kernels import attention
from llmlab.models import gpt2
from llmlab.optim import AdamW, LossScale, warmup_cosine
from llmlab.parameters import Parameters
from llmlab.precision import Precision
from llmlab.train.config import Config
from llmlab.train.loader import Loader, held_out_batches
from llmlab.train.readback import Readback

IGNORED = -100
"""A target that is no target: cross-entropy leaves its position out."""

Batches = Sequence[tuple[np.ndarray, np.ndarray]]


class Trainer:
    """Trains `config`'s model on `dataset`; `step` counts the optimizer steps that are done.

    Raises `UserError` for sizes that the data cannot fill.
    """

    def __init__(self, config: Config, dataset: Dataset):
        model, optimizer, training = config.model, config.optimizer, config.training
        for split, tokens in (("training", dataset.train), ("held-out", dataset.held_out)):
            if len(tokens) < model.T + 1:
                raise UserError(
                    f"T = {model.T} needs at least {model.T + 1} tokens, but the {split} part of "
                    f"{dataset.name!r} has {len(tokens)}; give more text, or a smaller --T"
                )
        self.config, self.dataset, self.step = config, dataset, 0
        self.loader = Loader(dataset.train, training.B, model.T, training.seed)
        self.model = model.network(dataset.vocabulary)
        precision = Precision(training.precision)
        keep_slope = (training.device, training.recompute, precision.name) == ("cpu", "none", "fp32")
        rows = training.logits_rows or None
        graph = gpt2.build(self.model, training.B, training.seed, keep_slope, rows)
        self.params = Parameters(graph.parameters, dtype=precision.compute, device=training.device)
        gpt2.initialise(self.params, self.model, training.seed, std=model.init_std or model.C**-0.5)
        self.engine = Engine(graph, self.params, policy=training.recompute, workers=training.workers)
        self.optimizer = AdamW(
            self.params,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            clip=optimizer.clip or None,
        )
        self.loss_scale = precision.loss_scale(training.device)
        self.attention = self._choose_attention()

    def _choose_attention(self) -> str | None:
        """The implementation that the setting comes to on a GPU, by its name; None on a CPU."""
        if self.params.device != "cuda":
            return None
        try:
            attention.use(self.config.training.attention)
            shape = 1, self.model.T, 3 * self.model.C
            qkv = arrays.namespace(self.params.master).empty(shape, self.params.dtype)
            return attention.chosen(qkv, self.model.H)
        except ValueError as error:
            raise UserError(f"--attention: {error}") from error

    def batches(self, step: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The micro-batches of a step: inputs and targets, (B, T) each."""
        n = self.config.training.accumulate
        return [self.loader.batch(k) for k in range(step * n, (step + 1) * n)]

    def lr(self, step: int) -> float:
        """The learning rate of a step, counted from 0. The warm-up takes at most a tenth of all steps."""
        o, steps = self.config.optimizer, self.config.training.steps
        return warmup_cosine(step, o.lr, min(o.warmup, steps // 10), steps, o.lr_end)

    def train_step(self, batches: Batches) -> Readback:
        """One optimizer step over micro-batches: `loss` and gradient `norm`, on their way to the host.

        Each micro-batch weighs as much as it has targets: how a batch is cut does not change its gradient.

            loss = sum over all targets / number of all targets
        """
        valid = [np.count_nonzero(targets != IGNORED) for _, targets in batches]
        total = max(sum(valid), 1)
        scale, inverse = (self.loss_scale.scale, self.loss_scale.inverse) if self.loss_scale else (None, 1.0)
        shares = [
            self.engine.forward_backward(x, y, weight=n / total, scale=scale)
            for (x, y), n in zip(batches, valid)
        ]
        norm = self.optimizer.step(self.lr(self.step), inverse)
        if self.loss_scale:
            self.loss_scale.update(norm)
        self.params.zero_grad()
        self.step += 1
        return Readback(loss=sum(shares[1:], shares[0]), norm=norm)

    def evaluate(self) -> float:
        """The mean loss on held-out text, in nats per token."""
        if self.loss_scale:
            self.loss_scale.warn_if_stuck()
        training = self.config.training
        total, count = 0.0, 0
        for tokens, targets in held_out_batches(
            self.dataset.held_out, training.B, self.model.T, self.config.report.eval_tokens
        ):
            loss = self.engine.loss(tokens, targets)
            total, count = total + loss * np.float32(targets.size), count + targets.size
        return float(total) / count

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """Logits (B, t, V) of tokens (B, t), on the host."""
        return arrays.to_numpy(self.engine.logits(tokens))

    def _parts(self) -> dict[str, Parameters | AdamW | LossScale]:
        """Whatever has a state, by what the names of its arrays begin with in a saved one."""
        parts = {"": self.params, "optimizer.": self.optimizer, "loss_scale.": self.loss_scale}
        return {prefix: part for prefix, part in parts.items() if part is not None}

    def buffers(self) -> dict[str, Any]:
        """Every array that the next steps depend on, on its device."""
        return {p + name: array for p, part in self._parts().items() for name, array in part.state.items()}

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All that the next steps depend on: arrays on the host, and facts as JSON values."""
        facts = {"step": self.step, "dropout_step": self.engine.step, "data": self.dataset.fingerprint}
        return {name: np.array(arrays.to_numpy(array)) for name, array in self.buffers().items()}, facts

    def restore(self, saved: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from what `state` returned.

        Raises `UserError` when the state is damaged, or belongs to another model or other data. Nothing is
        overwritten then.
        """
        if facts["data"] != self.dataset.fingerprint:
            raise UserError(
                f"the text of {self.dataset.name!r} is not what this run began with (for pydoc: another "
                "Python); start a new run, or bring the old text back"
            )
        parts = self._parts()
        states = {
            prefix: {name: saved[prefix + name] for name in part.state if prefix + name in saved}
            for prefix, part in parts.items()
        }
        for prefix, part in parts.items():  # all of them, before the first is overwritten
            try:
                part.check_state(states[prefix])
            except (TypeError, ValueError) as error:
                kind = type(part).__name__
                raise UserError(f"cannot go on from the saved state: {kind}: {error}") from error
        for prefix, part in parts.items():
            part.load(states[prefix])
        self.step, self.engine.step = facts["step"], facts["dropout_step"]


def resolve_device(device: str) -> str:
    """ "cpu" or "cuda": for "auto", the GPU if there is one.

    Raises `UserError` for a GPU that is asked for and not there.
    """
    if device == "auto":
        return "cuda" if arrays.gpu_available() else "cpu"
    if device == "cuda" and not arrays.gpu_available():
        raise UserError(
            "--device cuda: CuPy sees no CUDA device here; `pip install -e '.[gpu]'` where there is an "
            "NVIDIA GPU, or use --device cpu (`llmlab doctor` tells more)"
        )
    return device


def resolve_precision(precision: str, device: str) -> str:
    """For "auto", bfloat16 on a GPU whose matrix units know it (Ampere and later), float32 elsewhere."""
    if precision != "auto":
        return precision
    return "bf16" if device == "cuda" and arrays.compute_capability() >= (8, 0) else "fp32"


def resolve_workers(workers: int, B: int, device: str) -> int:
    """Threads that share a batch: on a CPU as many as there are cores, but no more than 4 or than rows."""
    if device == "cuda":
        return 1
    return workers or min(usable_cores(), 4, B)
