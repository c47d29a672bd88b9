"""A corpus ready for training: tokens for training and held out, and the way back to text."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmlab.data import corpora, ngrams, shards, tokenizer
from llmlab.data.shards import Tokens
from llmlab.errors import UserError

COUNTED = 20_000_000
"""Tokens that n-grams are counted on, at most: a few seconds of counting."""


@dataclass(frozen=True)
class Dataset:
    """Tokens of a corpus, its last part held out. `fingerprint` tells two corpora apart."""

    name: str
    vocabulary: int
    train: Tokens
    held_out: Tokens
    fingerprint: str
    encode: Callable[[str], np.ndarray]
    decode: Callable[[np.ndarray], str]

    def baselines(self) -> dict[str, float]:
        """The held-out losses of counting n-grams of the training tokens."""
        train = self.train.read(0, min(len(self.train), COUNTED))
        held_out = self.held_out.read(0, min(len(self.held_out), COUNTED))
        return ngrams.losses(train, held_out, self.vocabulary)


def load(sources: Sequence[str], held_out: float = 0.1) -> Dataset:
    """Read a corpus (see `corpora.load`), or memory-map a folder of token shards.

    The last `held_out` of a text is held out; a folder of shards brings its own "val" split.

    Raises `UserError` for what cannot be read.

    >>> dataset = load(["pydoc"])
    >>> dataset.vocabulary, dataset.decode(dataset.train.read(0, 12))
    (256, 'The "assert"')
    """
    if len(sources) == 1 and (Path(sources[0]) / shards.INDEX).is_file():
        return load_shards(Path(sources[0]))
    corpus = corpora.load(sources)
    tokens = tokenizer.encode(corpus.text)
    cut = round(len(tokens) * (1 - held_out))
    return Dataset(
        name=corpus.name,
        vocabulary=tokenizer.VOCABULARY,
        train=Tokens([tokens[:cut]]),
        held_out=Tokens([tokens[cut:]]),
        fingerprint=hashlib.sha256(corpus.text).hexdigest(),
        encode=tokenizer.encode,
        decode=tokenizer.decode,
    )


def load_shards(folder: Path) -> Dataset:
    """A folder of token shards as a dataset. Token ids of an unknown tokenizer are shown as numbers."""
    splits, index = shards.open_folder(folder)
    facts = (folder / shards.INDEX).read_bytes() + repr([len(s) for s in splits.values()]).encode()
    as_bytes = index.get("tokenizer") == "bytes"
    return Dataset(
        name=corpora.folder_name(str(folder)),
        vocabulary=index["vocabulary"],
        train=splits["train"],
        held_out=splits["val"],
        fingerprint=hashlib.sha256(facts).hexdigest(),
        encode=tokenizer.encode if as_bytes else numbers,
        decode=tokenizer.decode if as_bytes else lambda ids: " ".join(str(int(i)) for i in ids),
    )


def numbers(text: str) -> np.ndarray:
    """Token ids written as numbers.

    >>> numbers("11 5").tolist()
    [11, 5]
    """
    try:
        return np.array([int(word) for word in text.split()])
    except ValueError:
        raise UserError(
            f"--prompt {text!r}: these token shards have no tokenizer here; give the prompt as token ids"
        ) from None
