"""`llmlab <command>`: finds the command, hands it the other words, turns a `UserError` into one line."""

import argparse
import importlib
import os
import sys
from typing import NamedTuple, NoReturn

from llmlab import __version__
from llmlab.errors import UserError, suggestion


class Command(NamedTuple):
    """Where a command lives: `main(argv)` of a module that is imported only when the command is asked for."""

    module: str
    help: str
    first_words: tuple[str, ...] = ()
    extra: str = ""


COMMANDS = {
    "train": Command("llmlab.cli.train", "train a GPT on text, or go on with a run"),
    "sample": Command("llmlab.cli.sample", "let a trained run continue a text"),
    "data": Command("llmlab.cli.data", "list the corpora, or write one as token shards"),
    "memory": Command("llmlab.cli.memory", "tell what a training step will hold, before anything is run"),
    "doctor": Command("llmlab.cli.doctor", "tell what this machine has, and what more would give"),
    "lab": Command("llmlab.book.cli", "open the book in JupyterLab", ("lab",), "book"),
    "book": Command("llmlab.book.cli", "build, run and test the book", extra="book"),
    "check": Command("llmlab.book.cli", "check that the book is whole and current", ("check",), "book"),
    "kernel": Command("llmlab.kernels.cli", "check or profile a CUDA kernel on this machine, GPU or not"),
}


class Parser(argparse.ArgumentParser):
    """An `argparse` parser that complains in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def printable(text: str) -> str:
    """Text with its control characters replaced: an untrained model writes any byte, and terminals obey some.

    >>> printable("a\\tb\\x1b[2J")
    'a\\tb\ufffd[2J'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def main(argv: list[str] | None = None) -> int:
    """Run one `llmlab` command; return its exit code: 0 done, 2 bad input, 130 interrupted."""
    parser = Parser(
        prog="llmlab",
        usage="llmlab <command> [...]",
        description="How a language model is trained, gradient by gradient.",
        epilog="commands:\n"
        + "\n".join(f"  {name:<8} {command.help}" for name, command in COMMANDS.items())
        + "\n\n`llmlab <command> --help` tells more about one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"llmlab {__version__}")
    parser.add_argument("command", help=argparse.SUPPRESS)
    words = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Unicode gets ? rather than a traceback
            stream.reconfigure(errors="replace")
    if not words:
        parser.print_help()
        return 0
    try:
        name = parser.parse_args(words[:1]).command
        if name not in COMMANDS:
            raise UserError(f"unknown command {name!r}{suggestion(name, COMMANDS)}")
        command = COMMANDS[name]
        return importlib.import_module(command.module).main([*command.first_words, *words[1:]]) or 0
    except ModuleNotFoundError as error:
        if not command.extra or str(error.name).startswith("llmlab"):
            raise
        advice = f"pip install -e '.[{command.extra}]'"
        print(
            f"llmlab: error: `llmlab {name}` needs {error.name}, not installed here: {advice}",
            file=sys.stderr,
        )
        return 2
    except UserError as error:
        print(f"llmlab: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("llmlab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as in `llmlab ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
