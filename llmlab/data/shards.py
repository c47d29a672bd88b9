"""Token shards: token ids on disk as `.npy` files, as wide as the vocabulary needs, read by memory map.

A folder of shards holds `tokens.json` (vocabulary, tokenizer, and each split's shards) and the `.npy` files.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from llmlab.errors import UserError

INDEX = "tokens.json"


def token_dtype(vocabulary: int) -> np.dtype:
    """The narrowest unsigned integer that holds every id of a vocabulary.

    >>> token_dtype(256), token_dtype(257), token_dtype(65537)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    if not 0 < vocabulary <= 2**32:
        raise ValueError(f"vocabulary: needs 1...2**32, got {vocabulary}")
    return np.min_scalar_type(vocabulary - 1)


def write_shard(path: str | Path, tokens: np.ndarray, vocabulary: int) -> None:
    """Write 1-D integer ids, in `token_dtype(vocabulary)`.

    Raises `ValueError` for an id outside 0...vocabulary-1: no id ever wraps.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ValueError(f"tokens: need a 1-D integer array, got {tokens.dtype} of shape {tokens.shape}")
    if tokens.size and (tokens.min() < 0 or tokens.max() >= vocabulary):
        raise ValueError(
            f"tokens: ids must lie in 0...{vocabulary - 1}, got {tokens.min()}...{tokens.max()}; "
            "is this the tokenizer that belongs to the vocabulary?"
        )
    np.save(path, tokens.astype(token_dtype(vocabulary)), allow_pickle=False)


class Tokens:
    """One long sequence of token ids over several shards, of which only what is asked for is read.

    >>> tokens = Tokens([np.arange(5), np.arange(5, 8)])
    >>> len(tokens), tokens.read(3, 4).tolist()
    (8, [3, 4, 5, 6])
    """

    def __init__(self, shards: Iterable[str | Path | np.ndarray]):
        self.shards = [
            shard if isinstance(shard, np.ndarray) else np.load(shard, mmap_mode="r", allow_pickle=False)
            for shard in shards
        ]
        # Python integers from here on: offsets never meet 32 bits.
        self.ends = np.cumsum([len(shard) for shard in self.shards], dtype=np.int64).tolist()

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def read(self, start: int, length: int) -> np.ndarray:
        """The `length` ids from `start`, as int32 (int64 for shards wider than 31 bits allow).

        Raises `IndexError` when they do not all exist.
        """
        start, length = int(start), int(length)
        if start < 0 or length < 0 or start + length > len(self):
            raise IndexError(f"tokens {start}...{start + length} of {len(self)}")
        wide = any(shard.dtype.itemsize > 2 for shard in self.shards)
        ids = np.empty(length, np.int64 if wide else np.int32)
        done = 0
        for shard, end in zip(self.shards, self.ends):
            offset = start + done - (end - len(shard))
            if done < length and offset < len(shard):
                piece = shard[offset : offset + length - done]
                ids[done : done + len(piece)] = piece
                done += len(piece)
        return ids


def write_folder(
    folder: str | Path,
    splits: dict[str, np.ndarray],
    vocabulary: int,
    tokenizer: str = "bytes",
    shard_tokens: int = 100_000_000,
) -> None:
    """Write each split as shards of at most `shard_tokens` ids; the index comes last, and makes it whole.

    Raises `UserError` when the folder already holds shards.
    """
    folder = Path(folder)
    if (folder / INDEX).exists():
        raise UserError(f"{folder}: already holds token shards; choose another folder, or remove it first")
    folder.mkdir(parents=True, exist_ok=True)
    index: dict = {"vocabulary": vocabulary, "tokenizer": tokenizer, "splits": {}}
    for split, tokens in splits.items():
        names = []
        for start in range(0, len(tokens), shard_tokens):
            names.append(f"{split}-{len(names):05d}.npy")
            write_shard(folder / names[-1], tokens[start : start + shard_tokens], vocabulary)
        index["splits"][split] = names
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n")


def open_folder(
    folder: str | Path, splits: Sequence[str] = ("train", "val")
) -> tuple[dict[str, Tokens], dict]:
    """The splits of a folder of shards, and its index.

    Raises `UserError` naming what is missing or does not fit the index.
    """
    folder = Path(folder)
    try:
        index = json.loads((folder / INDEX).read_text())
        opened = {split: Tokens(folder / name for name in index["splits"][split]) for split in splits}
        expected = token_dtype(index["vocabulary"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not a readable folder of token shards ({error})") from error
    for split, tokens in opened.items():
        for shard in tokens.shards:
            if shard.ndim != 1 or shard.dtype != expected:
                raise UserError(
                    f"{folder}: a shard of {split!r} holds {shard.dtype} of shape {shard.shape}, "
                    f"but a vocabulary of {index['vocabulary']} is stored as 1-D {expected}"
                )
    return opened, index
