import dataclasses
import math

import numpy as np
import pytest

from llmlab.data import dataset
from llmlab.errors import UserError
from llmlab.kernels import attention
from llmlab.train import run
from llmlab.train.trainer import IGNORED, Trainer, resolve_device, resolve_precision, resolve_workers


@pytest.fixture
def make(tiny, text):
    def trainer(**changed):
        return Trainer(tiny.updated({"dropout": 0.0, "workers": 1, **changed}), dataset.load([str(text)]))

    return trainer


def rows(count, seed=0):
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, (count, 9)).astype(np.int32)
    return x[:, :-1].copy(), x[:, 1:].copy()


def after_step(trainer, batches):
    """The loss, the norm and the gradient of one step."""
    trainer.params.zero_grad = lambda: None
    values = trainer.train_step(batches).values()
    return values["loss"], values["norm"], trainer.params.gradient


def test_a_batch_weighs_its_tokens_however_it_is_cut(make):
    """3 valid tokens in one micro-batch, 1 in another: not a mean of means."""
    x, y = rows(2)
    y[0, 3:], y[1, 1:] = IGNORED, IGNORED
    whole_loss, whole_norm, whole = after_step(make(B=2), [(x, y)])
    loss, norm, gradient = after_step(make(B=1), [(x[:1], y[:1]), (x[1:], y[1:])])
    assert (loss, norm) == pytest.approx((whole_loss, whole_norm), rel=1e-6)
    np.testing.assert_allclose(gradient, whole, rtol=1e-4, atol=1e-6 * whole_norm)

    alone = [after_step(make(B=1), [(x[i : i + 1], y[i : i + 1])])[0] for i in range(2)]
    assert loss == pytest.approx((3 * alone[0] + alone[1]) / 4, rel=1e-6)
    assert loss != pytest.approx(np.mean(alone), rel=1e-6)


def test_a_micro_batch_without_targets_adds_nothing(make):
    x, y = rows(1)
    nothing = np.full_like(y, IGNORED)
    first, second = after_step(make(), [(x, y)]), after_step(make(), [(x, y), (x, nothing)])
    assert first[:2] == second[:2]
    assert (first[2] == second[2]).all()


@pytest.mark.parametrize(("clip", "within"), [(0.0, math.inf), (0.5, 0.5)])
def test_clip_0_means_no_clipping(make, clip, within):
    assert make(clip=clip).optimizer.clip == within


def test_a_step_without_any_target_changes_no_weight_by_gradient(make):
    x, y = rows(1)
    trainer = make(weight_decay=0.0)
    loss, norm, _ = after_step(trainer, [(x, np.full_like(y, IGNORED))])
    assert (loss, norm) == (0, 0)
    assert (trainer.params.master == make().params.master).all()


def test_logits_by_chunks_train_the_same_model(make):
    batches = [rows(2)]
    whole, chunked = make(), make(logits_rows=3)
    largest = chunked.engine.plans["training"].graph.shape("loss.logits")
    assert largest == (3, 256)
    loss, norm, gradient = after_step(whole, batches)
    got_loss, got_norm, got = after_step(chunked, batches)
    assert (got_loss, got_norm) == pytest.approx((loss, norm), rel=1e-6)
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-6 * norm)
    assert chunked.evaluate() == pytest.approx(whole.evaluate(), rel=1e-4)
    x = batches[0][0]
    np.testing.assert_allclose(chunked.logits(x), whole.logits(x), rtol=1e-2, atol=1e-3)


def test_nothing_is_promoted_by_a_float64_learning_rate(make):
    trainer = make()
    trainer.lr = lambda step: np.float64(1e-3) * np.cos(np.float64(0.1))
    trainer.train_step(trainer.batches(0))
    dtypes = {name: str(array.dtype) for name, array in trainer.buffers().items()}
    assert dtypes == {
        "master": "float32", "optimizer.m": "float32", "optimizer.v": "float32", "optimizer.updates": "int64"
    }  # fmt: skip
    assert trainer.params.gradient.dtype == trainer.logits(np.zeros((1, 3), np.int32)).dtype == np.float32


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_short_precisions_keep_masters_and_moments_in_float32(make, precision):
    trainer = make(precision=precision, lr=0.01)
    before = trainer.evaluate()
    for step in range(10):
        trainer.train_step(trainer.batches(step))
    assert trainer.evaluate() < before - 0.1
    assert all(array.dtype != trainer.params.dtype for array in trainer.buffers().values())
    assert ("loss_scale.scale" in trainer.buffers()) == (precision == "fp16")


def test_the_evaluation_is_the_mean_over_held_out_tokens(make):
    trainer = make(B=3, eval_tokens=40)
    ids = trainer.dataset.held_out.read(0, 41)
    inputs = ids[:40].reshape(5, 8)
    logits = np.concatenate([trainer.logits(inputs[:3]), trainer.logits(inputs[3:])]).astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = -np.take_along_axis(log_p, ids[1:].reshape(5, 8, 1), -1).mean()
    assert trainer.evaluate() == pytest.approx(wanted, rel=1e-6)


def test_a_state_restores_every_bit_and_refuses_another_model_or_text(make, text):
    trainer = make()
    trainer.train_step(trainer.batches(0))
    arrays, facts = trainer.state()
    arrays_then = {name: array.copy() for name, array in arrays.items()}
    trainer.train_step(trainer.batches(1))
    assert all((arrays[name] == arrays_then[name]).all() for name in arrays)  # a copy, not a view

    fresh = make()
    fresh.restore(arrays, facts)
    fresh.train_step(fresh.batches(fresh.step))
    assert (fresh.params.master == trainer.params.master).all()

    with pytest.raises(UserError, match="Parameters: state 'master' has shape .* model of another size"):
        make(C=16).restore(arrays, facts)
    text.write_text(text.read_text() + "more")
    with pytest.raises(UserError, match="not what this run began with"):
        make().restore(arrays, facts)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("master", math.nan, "Parameters: state 'master' has 1 element"),
        ("master", -math.inf, "Parameters: state 'master' has 1 element"),
        ("master", np.zeros(8, np.float32), "Parameters: state 'master' has shape"),
        ("master", np.float64, "Parameters: state 'master' has dtype float64, needs float32"),
        ("master", None, r"Parameters: state has \[\], needs \['master'\]"),
        ("optimizer.m", math.nan, "AdamW: state 'm' has 1 element"),
        ("optimizer.v", -1, "AdamW: state 'v' has 1 element"),
        ("optimizer.updates", -5, "AdamW: state 'updates' has 1 element"),
        ("optimizer.updates", None, "AdamW: state has .*'m', 'v'.*, needs .*'updates'"),
        ("loss_scale.scale", 0, "LossScale: state 'scale' has 1 element"),
        ("loss_scale.scale", 2.0**30, "LossScale: state 'scale' has 1 element"),
        ("loss_scale.good", -1, "LossScale: state 'good' has 1 element"),
    ],
)
def test_a_damaged_state_is_refused_by_name_and_overwrites_nothing(make, name, value, complaint):
    trainer = make(precision="fp16")
    trainer.train_step(trainer.batches(0))
    saved, facts = trainer.state()
    if value is None:
        del saved[name]
    elif isinstance(value, type):
        saved[name] = saved[name].astype(value)
    elif isinstance(value, np.ndarray):
        saved[name] = value
    else:
        saved[name][0] = value
    fresh = make(precision="fp16")
    before, facts_before = fresh.state()
    with pytest.raises(UserError, match=f"^cannot go on from the saved state: {complaint}"):
        fresh.restore(saved, facts)
    after, facts_after = fresh.state()
    assert facts_after == facts_before
    assert all((after[name] == before[name]).all() for name in before)


def test_a_state_in_short_precision_restores_the_compute_copy_and_the_inverse_of_the_scale(make):
    trainer, fresh = make(precision="fp16"), make(precision="fp16", seed=7)
    trainer.loss_scale.update(np.full(1, math.inf, np.float32))
    fresh.restore(*trainer.state())
    assert (fresh.params.compute == trainer.params.compute).all()
    assert fresh.loss_scale.inverse == trainer.loss_scale.inverse == 1 / 32768


def test_a_sequence_longer_than_the_text_is_refused(make):
    with pytest.raises(
        UserError, match=r"T = 500 needs at least 501 tokens, but the held-out part .* has \d+"
    ):
        make(T=500)


def test_the_warm_up_takes_at_most_a_tenth(make):
    trainer = make(steps=20, warmup=1000, lr=1.0)
    assert trainer.lr(0) == 0.5
    assert trainer.lr(2) == 1.0


def test_devices_and_workers_are_resolved(monkeypatch):
    from llmlab import arrays
    from llmlab.train import trainer

    monkeypatch.setattr(arrays, "gpu_available", lambda: False)
    monkeypatch.setattr(trainer, "usable_cores", lambda: 64)
    assert resolve_device("auto") == "cpu"
    with pytest.raises(UserError, match="sees no CUDA device"):
        resolve_device("cuda")
    assert resolve_workers(0, 16, "cpu") == 4
    assert resolve_workers(0, 2, "cpu") == 2
    assert resolve_workers(7, 16, "cpu") == 7
    assert resolve_workers(0, 16, "cuda") == 1


@pytest.mark.parametrize(
    ("asked", "device", "capability", "found"),
    [
        ("auto", "cpu", (9, 0), "fp32"),
        ("auto", "cuda", (8, 0), "bf16"),
        ("auto", "cuda", (7, 5), "fp32"),
        ("fp16", "cuda", (9, 0), "fp16"),
        ("fp32", "cuda", (9, 0), "fp32"),
    ],
)
def test_auto_takes_bf16_where_the_matrix_units_know_it(monkeypatch, asked, device, capability, found):
    monkeypatch.setattr("llmlab.arrays.compute_capability", lambda: capability)
    assert resolve_precision(asked, device) == found


def test_a_run_keeps_the_precision_that_auto_found(tiny, monkeypatch):
    monkeypatch.setattr("llmlab.train.run.resolve_precision", lambda asked, device: "bf16")
    loop = run.begin(tiny.updated({"precision": "auto"}))
    monkeypatch.undo()
    assert loop.run()
    assert run.resume(loop.folder.path, {"steps": 20}).config.training.precision == "bf16"


def test_rows_of_logits_start_where_wide_loads_may_and_predictions_have_no_padding(tiny, text):
    data = dataclasses.replace(dataset.load([str(text)]), vocabulary=300)
    trainer = Trainer(tiny.updated({"workers": 1}), data)
    assert trainer.params["wte.weight"].shape == (384, 8)
    assert trainer.logits(np.zeros((1, 3), np.int32)).shape == (1, 3, 300)
    trainer.train_step(trainer.batches(0))
    assert not trainer.params["wte.weight"][300:].any()


def test_attention_is_chosen_and_named(make, monkeypatch):
    trainer = make(precision="bf16", C=16, H=2)
    assert trainer.attention is None  # on a CPU
    trainer.params.device = "cuda"
    for setting, name in (("auto", "wgmma"), ("mma", "mma")):
        trainer.config = trainer.config.updated({"attention": setting})
        assert trainer._choose_attention() == name
    trainer.config = trainer.config.updated({"attention": "cudnn"})
    with pytest.raises(UserError, match="--attention: .*cudnn"):
        trainer._choose_attention()
    attention.use("auto")
