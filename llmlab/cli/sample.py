"""`llmlab sample`: let a trained run continue a text."""

from llmlab.cli import Parser, printable
from llmlab.errors import UserError
from llmlab.train import run, settings
from llmlab.train.config import SPECS
from llmlab.train.loop import continuation

CHANGEABLE = ("prompt", "temperature", "top_k", "seed")


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="llmlab sample",
        description="Let a trained run continue a text. What is not given is as in the run's config.toml.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, such as runs/pydoc-1")
    parser.add_argument("--tokens", type=int, default=400, metavar="N", help="tokens to sample; default 400")
    parser.add_argument("--device", choices=SPECS["device"].metadata["choices"], default="auto")
    settings.add_arguments(parser, {"sampling": ("", [SPECS[name] for name in CHANGEABLE])})
    given = vars(parser.parse_args(argv))
    if given["tokens"] < 1:
        raise UserError(f"--tokens {given['tokens']}: must be >= 1")
    changed = {name: given[name] for name in CHANGEABLE if name in given}
    for name, value in changed.items():
        settings.check(SPECS[name], value)
    trainer = run.load(given["run"], given["device"])
    prompt = changed.pop("prompt", trainer.config.report.prompt)
    print(printable(continuation(trainer, prompt, given["tokens"], **changed)))
    return 0
