"""The byte tokenizer: a token is a byte of UTF-8, so every text has tokens and the vocabulary is 256."""

import numpy as np

VOCABULARY = 256


def encode(text: str | bytes) -> np.ndarray:
    """The bytes of `text` (as UTF-8) as an array of uint8 token ids.

    >>> encode("né").tolist()
    [110, 195, 169]
    """
    return np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)


def decode(tokens: np.ndarray) -> str:
    """The text of byte tokens; a sequence that is not UTF-8, as a model may sample, becomes U+FFFD.

    Raises `ValueError` for an id outside 0...255.

    >>> decode(encode("né")), decode([195])
    ('né', '�')
    """
    ids = np.asarray(tokens)
    if ids.size and (ids.min() < 0 or ids.max() >= VOCABULARY):
        raise ValueError(f"tokens: a byte is 0...{VOCABULARY - 1}, got {ids.min()}...{ids.max()}")
    return ids.astype(np.uint8).tobytes().decode(errors="replace")
