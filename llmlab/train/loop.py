"""The loop around the step: progress, metrics, evaluations, saved states, and a clean end."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tqdm import tqdm

from llmlab.data.dataset import Dataset
from llmlab.errors import UserError
from llmlab.train import metrics, state
from llmlab.train.folder import RunFolder
from llmlab.train.loader import prefetched
from llmlab.train.readback import Readback
from llmlab.train.sampling import sample
from llmlab.train.trainer import Trainer

BAR = "{percentage:3.0f}% |{bar}| step {n_fmt} of {total_fmt}, {elapsed}, {remaining} left{postfix}"


class Loop:
    """Runs a trainer from where it stands to its last step, in a run folder."""

    def __init__(self, trainer: Trainer, folder: RunFolder, seconds: float = 0.0, metrics_bytes: int = 0):
        self.trainer, self.folder, self.config = trainer, folder, trainer.config
        self.metrics_bytes = metrics_bytes
        self.seconds, self.started = seconds, time.perf_counter()
        self.mark = trainer.step, self.started  # the rate is counted from here: after the last pause
        self.loss = self.held_out = math.nan
        self.rate = 0.0
        self.baselines = trainer.dataset.baselines()
        self.title = f"{trainer.dataset.name}: {describe(trainer)}"

    def run(self) -> bool:
        """Train to the end. False when it was interrupted: it is saved then, and can go on later."""
        first, last = self.trainer.step, self.config.training.steps
        pending: tuple[int, Readback] | None = None
        with (
            metrics.Metrics(self.folder.metrics, self.metrics_bytes) as self.metrics,
            interruptible() as stop,
            self.progress(first, last) as bar,
        ):
            batches = prefetched(self.trainer.batches, first, last)
            for step, batch in enumerate(batches, start=first + 1):
                reading = self.trainer.train_step(batch)
                if pending:
                    self.record(*pending, bar)
                pending = (step, reading)
                report = self.config.report
                evaluating = step % report.eval_every == 0 or step == last
                saving = step % report.save_every == 0 or step == last or stop.is_set()
                if evaluating or saving:
                    self.record(*pending, bar)
                    pending = None
                if evaluating:
                    self.evaluate(step, bar)
                if saving:
                    self.save()
                if evaluating or saving:
                    self.mark = step, time.perf_counter()
                if stop.is_set():
                    break
            batches.close()
            self.draw()
        return self.trainer.step == last

    def record(self, step: int, reading: Readback, bar: tqdm) -> None:
        """Note a finished step's figures, and show them."""
        values = reading.values()
        if not math.isfinite(values["loss"]):
            repair = f"try an --lr below {self.config.optimizer.lr:g}"
            if state.states(self.folder.states):
                repair = f"earlier states are in {self.folder.states}; {repair}"
            raise UserError(
                f"the loss became {values['loss']} at step {step}: training diverged; {repair}"
            )
        norm = values["norm"] if math.isfinite(values["norm"]) else None  # a step that was skipped
        self.metrics.write(
            step=step,
            loss=values["loss"],
            norm=norm,
            lr=self.trainer.lr(step - 1),
            seconds=round(self.clock(), 3),
        )
        t, (marked_step, marked_time) = self.config.training, self.mark
        tokens = (step - marked_step) * t.B * t.accumulate * self.config.model.T
        self.rate = tokens / max(time.perf_counter() - marked_time, 1e-9)
        self.loss = values["loss"]
        bar.set_postfix_str(self.figures(), refresh=False)
        bar.update(step - bar.n)

    def figures(self) -> str:
        """What stands beside the progress bar."""
        held_out = "" if math.isnan(self.held_out) else f", held out {self.held_out:.3f}"
        return f"loss {self.loss:.3f}{held_out}, {self.rate:,.0f} tokens/s"

    def evaluate(self, step: int, bar: tqdm) -> None:
        """Note the loss on held-out text, and show it."""
        self.held_out = self.trainer.evaluate()
        self.metrics.write(step=step, held_out=self.held_out, seconds=round(self.clock(), 3))
        bar.set_postfix_str(self.figures(), refresh=False)

    def save(self) -> None:
        """Save everything that the run needs to go on.

        Raises `UserError` when the disk refuses: the states before this one, if any, are untouched.
        """
        arrays, facts = self.trainer.state()
        facts |= {"seconds": round(self.clock(), 3), "metrics_bytes": self.metrics.sync()}
        try:
            state.save(self.folder.states, self.trainer.step, arrays, facts, self.config.report.keep)
        except OSError as error:
            repair = "make room, and begin again"
            if state.states(self.folder.states):
                repair = f"earlier states are whole: make room, then go on with --resume {self.folder.path}"
            raise UserError(
                f"{self.folder.states}: cannot save step {self.trainer.step}: {error.strerror}; {repair}"
            ) from error

    def draw(self) -> None:
        """Draw the loss so far."""
        self.metrics.sync()
        metrics.draw_loss(
            self.folder.loss_curve, metrics.read(self.folder.metrics), self.baselines, self.title
        )

    def sample(self) -> str:
        """Let the model continue the prompt, and write what it says."""
        text = continuation(self.trainer, self.config.report.prompt, self.config.report.sample)
        self.folder.write(self.folder.sample, text + "\n")
        return text

    def clock(self) -> float:
        """Seconds that the run has trained, over all its parts."""
        return self.seconds + time.perf_counter() - self.started

    def progress(self, first: int, last: int) -> tqdm:
        """A live bar on a terminal; elsewhere, a line now and then."""
        live = sys.stderr.isatty()
        return tqdm(
            total=last,
            initial=first,
            bar_format=BAR,
            dynamic_ncols=live,
            mininterval=0.2 if live else 15,
            smoothing=0.05,
        )


def continuation(trainer: Trainer, prompt: str, count: int, **changed: Any) -> str:
    """`count` tokens after a prompt, as text, by the run's own sampling settings or the changed ones."""
    report, T = trainer.config.report, trainer.config.model.T
    chosen = {
        "temperature": report.temperature,
        "top_k": report.top_k,
        "seed": trainer.config.training.seed,
        **changed,
    }
    tokens = prompt_tokens(trainer.dataset, prompt)
    return trainer.dataset.decode(sample(trainer.logits, tokens, count, T, **chosen))


def prompt_tokens(dataset: Dataset, prompt: str) -> np.ndarray:
    """The tokens of a prompt.

    Raises `UserError` when it has none, or one that is not in the vocabulary.
    """
    tokens = dataset.encode(prompt)
    if not len(tokens) or tokens.min() < 0 or tokens.max() >= dataset.vocabulary:
        raise UserError(f"prompt = {prompt!r}: needs at least one token, and only of the vocabulary")
    return tokens


def describe(trainer: Trainer) -> str:
    """The model in a few words."""
    m, t = trainer.config.model, trainer.config.training
    return (
        f"GPT-2 with L={m.L} H={m.H} C={m.C} T={m.T}, {trainer.params.count / 1e6:.2f} M parameters, "
        f"{t.B * t.accumulate * m.T:,} tokens a step"
    )


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C (or SIGTERM) sets instead of stopping the program; a second Ctrl-C stops it at
    once.
    """
    stop = threading.Event()

    def request(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous: dict[int, Callable | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
