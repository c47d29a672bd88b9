"""`llmlab train`: train a GPT on text, or go on with a run."""

import time

from llmlab.cli import Parser, printable
from llmlab.train import run, settings
from llmlab.train.config import PRESETS, SECTIONS, TITLES, Config, read
from llmlab.train.loop import Loop, describe


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="llmlab train",
        usage="%(prog)s [--data TEXT ...] [--model NAME] [...]  or  %(prog)s --resume RUN [--steps N] [...]",
        description="Train a GPT-2 on text. Without arguments: a small one, on Python's own documentation.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="TOML", help="file of settings; flags and --model win over it")
    parser.add_argument(
        "--model",
        choices=PRESETS,
        help="sizes of a published model, and a learning rate for it; text is still read byte by byte: the "
        "vocabulary V is 256",
    )
    parser.add_argument(
        "--resume", metavar="RUN", help="folder of a run to go on with, from its newest state"
    )
    settings.add_arguments(parser, {s: (TITLES[s], specs.values()) for s, specs in SECTIONS.items()})
    given = vars(parser.parse_args(argv))
    config, model, resume = given.pop("config"), given.pop("model"), given.pop("resume")
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    if resume:
        for flag, value in (("--config", config), ("--model", model)):
            if value:
                parser.error(f"--resume takes the run's own configuration: leave {flag} out")
        loop = run.resume(resume, given)
    else:
        start = read(config) if config else Config()
        loop = run.begin(start.updated({**PRESETS.get(model, {}), **given}))
    return train(loop)


def train(loop: Loop) -> int:
    """Run a loop to its end, telling what happens; 130 when it was interrupted."""
    trainer, path, began = loop.trainer, loop.folder.path, time.perf_counter()
    data, training = trainer.dataset, trainer.config.training
    by = f"attention by {trainer.attention}" if trainer.attention else f"{training.workers} of its cores"
    print(f"{describe(trainer)}")
    print(
        f"text {data.name}: {len(data.train):,} tokens to train on, {len(data.held_out):,} held out; "
        f"{training.device}, {training.precision}, {by}"
    )
    best = min(loop.baselines, key=loop.baselines.get)
    print(
        f"to beat: {loop.baselines[best]:.3f} nats per token, the best that counting n-grams can do ({best})"
    )
    if not loop.run():
        print(f"interrupted and saved at step {trainer.step}; go on with\n  llmlab train --resume {path}")
        return 130
    print(f"\nheld-out loss {loop.held_out:.3f} nats per token after {time.perf_counter() - began:.0f} s")
    for file in (loop.folder.loss_curve, loop.folder.sample, loop.folder.metrics, loop.folder.config):
        print(f"  {file}")
    print(
        f"  {loop.folder.states}/  (to train on: `llmlab train --resume {path} --steps {2 * training.steps}`)"
    )
    print(f"\n{printable(loop.sample())}")  # last: a large model on a CPU takes minutes for it
    return 0
