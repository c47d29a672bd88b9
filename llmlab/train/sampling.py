"""Text from a model, one token at a time."""

from collections.abc import Callable

import numpy as np
from tqdm import tqdm


def sample(
    logits: Callable[[np.ndarray], np.ndarray],
    prompt: np.ndarray,
    count: int,
    T: int,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """The prompt and `count` sampled tokens, (len(prompt) + count,).

    `logits` maps tokens (1, t) with t <= T to logits (1, t, V); the model sees the last T tokens.

    Raises `ValueError` for an empty prompt: the first token needs one before it.

    >>> always_next = lambda tokens: np.eye(5)[None, (tokens[0] + 1) % 5]
    >>> sample(always_next, np.array([3]), 4, T=2, temperature=0).tolist()
    [3, 4, 0, 1, 2]
    """
    if len(prompt) == 0:
        raise ValueError("prompt: needs at least one token")
    random = np.random.Generator(np.random.Philox(seed))
    tokens = [int(token) for token in prompt]
    for _ in tqdm(range(count), "sampling", leave=False, disable=None):  # shown on a terminal only
        context = np.array(tokens[-T:], np.int32)[None]
        tokens.append(choose(np.asarray(logits(context))[0, -1], temperature, top_k, random))
    return np.array(tokens)


def choose(logits: np.ndarray, temperature: float, top_k: int, random: np.random.Generator) -> int:
    """One token from logits (V,): p = softmax(logits / temperature) over the `top_k` likeliest.

    >>> choose(np.array([0.0, 9.0]), temperature=0, top_k=0, random=np.random.default_rng(0))
    1
    """
    z = np.asarray(logits, np.float64)
    if temperature == 0:
        return int(z.argmax())
    if 0 < top_k < len(z):
        z = np.where(z >= np.partition(z, -top_k)[-top_k], z, -np.inf)
    p = np.exp((z - z.max()) / temperature)
    return int(random.choice(len(p), p=p / p.sum()))
