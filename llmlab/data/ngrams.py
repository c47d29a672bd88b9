"""What counting alone can predict: the n-gram losses that a trained model has to beat."""

import numpy as np

NAMES = ("uniform", "unigram", "bigram", "trigram", "four-gram", "five-gram")


def losses(
    train: np.ndarray, held_out: np.ndarray, vocabulary: int = 256, orders: int = 5
) -> dict[str, float]:
    """Mean loss on `held_out`, in nats per token, of the uniform guess and of 1- to `orders`-gram counts of
    `train` (fewer orders for a vocabulary so large that `orders` ids do not fit in 63 bits).

    Each order is smoothed by the one below it, with Witten and Bell's weight (IEEE Trans. Information
    Theory 37(4), 1991, method C): a context c seen N(c) times and followed by D(c) different tokens gives

        p_n(w | c) = (N(c, w) + D(c) p_{n-1}(w | c')) / (N(c) + D(c)),     c' = c without its oldest token

    and p_0 = 1 / vocabulary.

    >>> a = np.tile([0, 1], 50)
    >>> {name: round(loss, 2) for name, loss in losses(a, a, vocabulary=4, orders=2).items()}
    {'uniform': 1.39, 'unigram': 0.7, 'bigram': 0.02}
    """
    orders = min(orders, int(63 / np.log2(max(vocabulary, 2))))
    train, held_out = np.asarray(train, np.int64), np.asarray(held_out, np.int64)
    p = np.full(len(held_out), 1 / vocabulary)
    result = {NAMES[0]: float(np.log(vocabulary))}
    for n in range(1, orders + 1):
        seen, counts = np.unique(codes(train, n, vocabulary), return_counts=True)
        contexts, first = np.unique(seen // vocabulary, return_index=True)
        N = np.add.reduceat(counts, first)
        D = np.diff(first, append=len(seen))

        wanted = codes(held_out, n, vocabulary)
        tail = slice(n - 1, None)  # the first n-1 tokens have no context of this length: they keep order n-1
        N_cw = lookup(seen, counts, wanted)
        N_c, D_c = lookup(contexts, N, wanted // vocabulary), lookup(contexts, D, wanted // vocabulary)
        known = N_c > 0
        p[tail] = np.where(known, (N_cw + D_c * p[tail]) / np.maximum(N_c + D_c, 1), p[tail])
        result[NAMES[n]] = float(-np.log(p).mean())
    return result


def codes(tokens: np.ndarray, n: int, vocabulary: int) -> np.ndarray:
    """Every run of `n` tokens as one integer, in base `vocabulary`, the newest token last.

    >>> codes(np.array([1, 2, 3]), 2, 10).tolist()
    [12, 23]
    """
    length = max(len(tokens) - n + 1, 0)
    code = np.zeros(length, np.int64)
    for i in range(n):
        code = code * vocabulary + tokens[i : i + length]
    return code


def lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 where the sorted `keys` do not have it."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
