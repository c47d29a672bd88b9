"""`llmlab data`: list the corpora, or write one as token shards."""

import argparse
from pathlib import Path

import numpy as np

from llmlab.cli import Parser
from llmlab.data import corpora, shards, tokenizer
from llmlab.errors import UserError


def main(argv: list[str]) -> int:
    parser = Parser(prog="llmlab data", description="List the corpora, or write one as token shards.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="list | write")
    commands.add_parser("list", help="the corpora that --data knows by name")
    write = commands.add_parser("write", help="write a corpus as a folder of memory-mapped token shards")
    write.add_argument(
        "folder", metavar="FOLDER", help="new folder, then good for `llmlab train --data FOLDER`"
    )
    write.add_argument("--data", nargs="+", default=["pydoc"], metavar="TEXT", help="a corpus, as in train")
    write.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="X",
        help="fraction for the held-out split; default 0.1",
    )
    given = parser.parse_args(argv)
    return list_corpora() if given.command == "list" else write_shards(given)


def list_corpora() -> int:
    for name, function in corpora.NAMED.items():
        print(f"{name:<16} {function.__doc__.splitlines()[0]}")
    return 0


def write_shards(given: argparse.Namespace) -> int:
    if not 0 < given.held_out < 1:
        raise UserError(f"--held-out {given.held_out}: must be > 0 and < 1")
    tokens = tokenizer.encode(corpora.load(given.data).text)
    cut = round(len(tokens) * (1 - given.held_out))
    splits: dict[str, np.ndarray] = {"train": tokens[:cut], "val": tokens[cut:]}
    try:
        shards.write_folder(given.folder, splits, tokenizer.VOCABULARY)
    except OSError as error:
        raise UserError(f"{given.folder}: cannot be written: {error.strerror}") from error
    print(f"{Path(given.folder)}: {cut:,} tokens to train on, {len(tokens) - cut:,} held out")
    return 0
