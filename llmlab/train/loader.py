"""Batches of shuffled windows of a token sequence, each found again by its number."""

import functools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from llmlab.data.shards import Tokens

Batch = TypeVar("Batch")


class Loader:
    """Batch number k of a run, as a pure function of (seed, k): where a run stands is one integer.

    An epoch cuts the tokens into windows of T at a random phase, and shuffles them. Sample i is window i
    mod n of epoch i // n; batch k is samples kB ... kB + B - 1. Targets are the inputs moved by one token.

    Raises `ValueError` for fewer than T + 1 tokens.

    >>> loader = Loader(Tokens([np.arange(100)]), B=2, T=8, seed=0)
    >>> x, y = loader.batch(7)
    >>> x.shape, bool((y == x + 1).all())
    ((2, 8), True)
    """

    def __init__(self, tokens: Tokens, B: int, T: int, seed: int):
        if len(tokens) < T + 1:
            raise ValueError(f"tokens: T = {T} needs at least {T + 1} tokens, got {len(tokens)}")
        self.tokens, self.B, self.T, self.seed = tokens, B, T, seed
        self.windows = max((len(tokens) - T) // T, 1)

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of batch k, (B, T) each."""
        rows = [self.tokens.read(self.start(i), self.T + 1) for i in range(k * self.B, (k + 1) * self.B)]
        ids = np.stack(rows)
        return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])

    def start(self, sample: int) -> int:
        """Where in the tokens a sample begins."""
        epoch, i = divmod(sample, self.windows)
        phase, order = self.epoch(epoch)
        return phase + int(order[i]) * self.T

    @functools.lru_cache(maxsize=2)  # noqa: B019  a loader lives as long as its run
    def epoch(self, epoch: int) -> tuple[int, np.ndarray]:
        """The phase and the order of the windows of one epoch."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        room = len(self.tokens) - 1 - self.windows * self.T
        return int(random.integers(min(room, self.T - 1) + 1)), random.permutation(self.windows)


def held_out_batches(tokens: Tokens, B: int, T: int, limit: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Consecutive windows of T from the start of the tokens, B at a time (the last batch may be smaller).

    At most `limit` tokens are predicted, and at least one window.
    """
    windows = max(min(len(tokens) - 1, limit) // T, 1)
    for first in range(0, windows, B):
        count = min(B, windows - first)
        ids = tokens.read(first * T, count * T + 1)
        yield ids[:-1].reshape(count, T), ids[1:].reshape(count, T)


def prefetched(make: Callable[[int], Batch], start: int, stop: int, ahead: int = 2) -> Iterator[Batch]:
    """`make(start), ..., make(stop - 1)`, made by a thread that stays `ahead` of the consumer.

    An error in `make` is raised where its item would have come. The thread ends when the iterator is closed.
    """
    ready: queue.Queue = queue.Queue(ahead)
    closed = threading.Event()

    def put(item: tuple[Batch | None, BaseException | None]) -> None:
        while not closed.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for k in range(start, stop):
                if closed.is_set():
                    return
                put((make(k), None))
        except BaseException as error:
            put((None, error))

    thread = threading.Thread(target=work, name="loader", daemon=True)
    thread.start()
    try:
        for _ in range(start, stop):
            item, error = ready.get()
            if error is not None:
                raise error
            yield item
    finally:
        closed.set()
        thread.join()
