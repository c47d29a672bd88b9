"""Beginning a run, and going on with one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmlab.data import corpora, dataset
from llmlab.errors import UserError
from llmlab.train import config as configuration
from llmlab.train import folder, state
from llmlab.train.config import SPECS, Config
from llmlab.train.loop import Loop, prompt_tokens
from llmlab.train.trainer import Trainer, resolve_device, resolve_precision, resolve_workers


def begin(config: Config) -> Loop:
    """A new run, ready at step 0. Its folder is made last: when anything is wrong, nothing is left behind.

    Raises `UserError` for whatever in the configuration cannot be.
    """
    config = resolved(config)
    trainer = build(config)
    prompt_tokens(trainer.dataset, config.report.prompt)  # now, not after the training
    made = folder.create(config.report.runs, config.report.name, trainer.dataset.name)
    trainer.config = config = config.updated({"name": made.path.name})
    made.write(made.config, config.to_toml())
    return Loop(trainer, made)


def resume(path: str | Path, changed: Mapping[str, Any]) -> Loop:
    """The run in a folder, ready where its newest whole state left it. `changed` settings may only be such
    that leave the run the same run: how long, where, what to report.

    Raises `UserError` for any other, and when there is nothing to go on from.
    """
    found = folder.existing(path)
    config = configuration.read(found.config)
    before = config.values()
    for name, value in changed.items():
        if SPECS[name].metadata["fixed"] and value != before[name]:
            raise UserError(
                f"--resume {path}: {name} is {before[name]!r} in this run; begin a new run to change it"
            )
    arrays, facts = state.load_latest(found.states)
    config = resolved(config.updated(changed))
    if facts["step"] >= config.training.steps:
        raise UserError(
            f"--resume {path}: the run is complete at step {facts['step']}; train longer with --steps N, N > "
            f"{facts['step']} (the learning rate then follows the longer schedule)"
        )
    trainer = build(config)
    trainer.restore(arrays, facts)
    found.write(found.config, config.to_toml())
    return Loop(trainer, found, facts["seconds"], facts["metrics_bytes"])


def load(path: str | Path, device: str = "auto") -> Trainer:
    """The trainer of a run in its newest state, for evaluating and sampling."""
    found = folder.existing(path)
    trainer = build(resolved(configuration.read(found.config).updated({"device": device})))
    trainer.restore(*state.load_latest(found.states))
    return trainer


def build(config: Config) -> Trainer:
    """The trainer of a resolved configuration.

    Raises `UserError` also where the memory does not suffice.
    """
    data = dataset.load(config.data.data, config.data.held_out)
    try:
        return Trainer(config, data)
    except MemoryError as error:
        raise UserError(
            "not enough memory for this model and batch: try a smaller --B or --recompute full"
        ) from error


def resolved(config: Config) -> Config:
    """The configuration with what depends on this machine and folder filled in, so that the run can be
    repeated.
    """
    training = config.training
    device = resolve_device(training.device)
    paths = config.data.data
    if not (len(paths) == 1 and paths[0] in corpora.NAMED):
        paths = tuple(str(Path(p).expanduser().absolute()) for p in paths)
    filled = {
        "device": device,
        "precision": resolve_precision(training.precision, device),
        "workers": resolve_workers(training.workers, training.B, device),
    }
    return config.updated({**filled, "data": paths})
