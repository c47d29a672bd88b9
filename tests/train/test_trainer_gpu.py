"""The trainer's step on a GPU: what the host waits for, and what a micro-batch more launches."""

from collections import Counter

import numpy as np
import pytest

from llmlab.data import dataset
from llmlab.kernels import cublas, cublaslt, rawmodule
from llmlab.train.trainer import Trainer

pytestmark = pytest.mark.gpu

SIZES = {"device": "cuda", "workers": 1, "L": 2, "H": 2, "C": 64, "T": 32, "dropout": 0.0}


@pytest.fixture(params=["fp32", "bf16", "fp16"])
def make(tiny, text, request):
    def trainer(**changed):
        config = tiny.updated({**SIZES, "precision": request.param, **changed})
        return Trainer(config, dataset.load([str(text)]))

    return trainer


@pytest.fixture
def waits(monkeypatch):
    """Calls that make the host wait: their names, and whether what they wait for was done already."""
    import cupy

    waits = []

    def count(owner, name, done):
        original = getattr(owner, name)

        def counted(self, *args, **kwargs):
            if kwargs.get("blocking", True):
                waits.append((f"{owner.__name__}.{name}", done(self)))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(cupy.cuda.Event, "synchronize", lambda event: event.done)
    count(cupy.cuda.Stream, "synchronize", lambda stream: stream.done)
    count(cupy.ndarray, "get", lambda array: False)  # whoever reads a value: float(), item(), bool()
    return waits


def test_the_host_waits_for_nothing_that_a_step_does(make, spin, waits):
    """Ten steps, each put behind a busy device: each is issued in full while the device has not begun it.

    That holds whatever the host might wait by. The calls that can wait are counted besides: those of the ring
    of pinned buffers for tokens and targets, once for each upload, for a copy of four batches ago. Here that
    is done, as in training, where the host is never that far ahead of the loss that it reads one step late.
    """
    import cupy

    trainer = make(accumulate=2)
    batches = [trainer.batches(i) for i in range(14)]
    for i in range(4):  # compiles, records, and fills the pools
        trainer.train_step(batches[i]).values()
    for i in range(4, 14):
        cupy.cuda.Device().synchronize()
        waits.clear()
        spin(0.3)
        values = trainer.train_step(batches[i])
        assert not cupy.cuda.get_current_stream().done
        assert waits == [("Event.synchronize", True)] * 2 * len(batches[i])
    assert np.isfinite(list(values.values().values())).all()


def test_waits_are_seen(spin, waits):
    """Each way to wait is counted, and ends behind the work: so the test above can fail."""
    import cupy

    x, stream = cupy.ones(1), cupy.cuda.get_current_stream()
    for wait in (x.get, lambda: float(x), x.item, lambda: bool(x[0]), stream.synchronize):
        spin(0.05)
        wait()
        assert stream.done
        assert any(not done for _, done in waits)  # `get` waits once more, for a copy that is done
        waits.clear()


@pytest.fixture
def launches(monkeypatch):
    """Kernels and products by name, as they are launched."""
    launches = Counter()

    def count(owner, name, key):
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            result = original(*args, **kwargs)
            if result is not False:  # as cuBLASLt says that it did nothing
                launches[key(*args)] += 1
            return result

        monkeypatch.setattr(owner, name, counted)

    count(rawmodule.Kernel, "__call__", lambda kernel, *_: kernel.name)
    count(cublas, "product", lambda *_: "product")
    count(cublaslt, "linear", lambda *_: "product with bias")
    return launches


def during(launches, function, *args, **kwargs):
    launches.clear()
    function(*args, **kwargs)
    return Counter(launches)


def test_a_micro_batch_more_launches_itself_and_nothing_else(make, launches):
    """Gradients are added by the kernels that make them, so that no pass over them is left to do."""
    trainer = make(accumulate=2)
    trainer.engine._runners[0].capture = False  # a CUDA graph's launches are not ours to see
    batches = trainer.batches(0)
    trainer.train_step(batches)
    micro = during(launches, trainer.engine.forward_backward, *batches[0], scale=1.0)
    optimizer = during(launches, trainer.optimizer.step, 0.0)
    assert sum(optimizer.values()) == 2
    assert micro["product"] > 10
    if trainer.loss_scale:
        optimizer += during(launches, trainer.loss_scale.update, trainer.optimizer.norm)
    assert during(launches, trainer.train_step, batches) == micro + micro + optimizer


def test_two_micro_batches_give_the_gradient_of_one_batch_of_both(make):
    """Up to the order of the sums over rows, and the rounding of gradients in 16 bits."""
    results = []
    for changed in {"B": 2, "accumulate": 2}, {"B": 4, "accumulate": 1}:
        trainer = make(**changed)
        trainer.params.zero_grad = lambda: None
        values = trainer.train_step(trainer.batches(0)).values()
        scale = float(trainer.loss_scale.scale[0]) if trainer.loss_scale else 1.0
        results.append((values["loss"], values["norm"], trainer.params.gradient.get() / scale))
    (loss, norm, parts), (loss_of_both, norm_of_both, whole) = results
    tolerance = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 3e-3}[trainer.config.training.precision]
    assert (loss, norm) == pytest.approx((loss_of_both, norm_of_both), rel=tolerance)
    assert np.linalg.norm(parts - whole) <= tolerance * np.linalg.norm(whole)
