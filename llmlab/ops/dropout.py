"""Dropout with a counter-based generator: the mask is a function of its place and is never stored.

    y_i = x_i keep_i / (1 - p)        keep_i = [word_i >= p · 2³²]        dx_i = dy_i keep_i / (1 - p)

As the mask depends on (seed, step, layer, place) only, backward and a recomputation draw it again. word_i
is an output of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), four
32-bit words from each block of the counter. Element i, counted in C order from `offset`, takes word (i mod
4) of the block with

    counter = (block mod 2³², block div 2³², step mod 2³², layer)        block = i div 4
    key     = (seed mod 2³², seed div 2³²)

and is kept if its word is at least round(p · 2³²). The kernel draws the same bits.
"""

from __future__ import annotations

import numpy as np

from llmlab.arrays import Array, namespace
from llmlab.kernels import accelerated
from llmlab.ops._precision import mixed_precision, result
from llmlab.ops.check import between, checked, integer

EVALUATION = {"p": 0.0}
"""Attributes with which a network is evaluated: nothing is dropped."""

IN_PLACE = {"y": ("x",), "dx": ("dy",)}
"""Results that may be written over an argument, if nobody needs it any more."""

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85  # what the key grows by in each round
_LOW = 0xFFFFFFFF


def philox(counter: tuple[Array, ...], key: tuple[int, int], rounds: int = 10) -> tuple[Array, ...]:
    """Philox4x32: four arrays of 32-bit words (held in uint64) for each counter.

    counter: four uint64 arrays that broadcast together, each word below 2³²; key: two integers below 2³².

    >>> import numpy as np
    >>> [hex(int(w[0])) for w in philox((np.zeros(1, np.uint64),) * 4, (0, 0))]   # Random123's test vector
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    low, half = np.uint64(_LOW), np.uint64(32)
    for _ in range(rounds):
        # (hi, lo) of both products; the halves change places and meet the key
        a, b = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (b >> half) ^ c1 ^ np.uint64(k0), b & low, (a >> half) ^ c3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def keep(count: int, p: float, seed: int, step: int, layer: int, offset: int = 0, xp=np) -> Array:
    """Which of `count` elements from place `offset` on are kept: booleans, True with probability 1 - p.

    >>> whole = keep(8, 0.5, seed=1, step=0, layer=0)
    >>> bool((whole[3:] == keep(5, 0.5, seed=1, step=0, layer=0, offset=3)).all())
    True
    """
    first, last = offset // 4, -(-(offset + count) // 4)
    block = xp.arange(first, last, dtype=xp.uint64)
    low, half = np.uint64(_LOW), np.uint64(32)
    constant = [xp.full(1, word, xp.uint64) for word in (_integer(step) & _LOW, int(layer) & _LOW)]
    words = philox((block & low, block >> half, *constant), (int(seed) & _LOW, int(seed) >> 32 & _LOW))
    threshold = np.uint64(round(float(p) * 2**32))
    kept = xp.stack(words, axis=-1) >= threshold
    return kept.reshape(-1)[offset - 4 * first:][:count]


def _integer(step: int | Array) -> int:
    """The step as a number; one that lives in an array of one element is read."""
    return int(step.item()) if hasattr(step, "item") else int(step)


def _check_place(p: float, seed: int, step: int | Array, layer: int, offset: int = 0, **_) -> None:
    between("p", p, 0, 1, closed=True)
    integer("seed", seed)
    if not hasattr(step, "dtype"):  # a step on the device isn't looked at: the host would wait
        integer("step", step)
    integer("layer", layer)
    integer("offset", offset, 0, 2**63 - 1)


def _mask(x: Array, p: float, seed: int, step: int, layer: int, offset: int, out: Array | None) -> Array:
    """x · keep / (1 - p)."""
    xp = namespace(x)
    out = xp.multiply(x, 1 / (1 - float(p)), out=result(out, x.shape, x))
    if p:
        kept = keep(x.size, p, seed, step, layer, offset, xp).reshape(x.shape)
        out[~kept] = 0
    return out


@checked(_check_place, x="*N", y="*N")
@accelerated("dropout", "forward")
@mixed_precision("y")
def forward(
    x: Array, p: float, seed: int, step: int, layer: int, offset: int = 0, *, y: Array | None = None,
) -> Array:
    """Set each element to 0 with probability p, and divide the others by 1 - p.

    x of any shape, 0 <= p < 1; returns y like x, which may be `x` itself. `seed` (64 bits), `step` (or an
    array of one element) and `layer` (32 bits) name the mask; `offset` is the place of x's first element,
    so that a part of a tensor can take its part of the mask. The same arguments give the same mask,
    anywhere.

    >>> import numpy as np
    >>> sorted(set(forward(np.ones(100), 0.5, seed=1, step=0, layer=0).tolist()))
    [0.0, 2.0]
    """
    return _mask(x, p, seed, step, layer, offset, y)


@checked(_check_place, dy="*N", dx="*N")
@accelerated("dropout", "backward")
@mixed_precision("dx")
def backward(
    dy: Array, p: float, seed: int, step: int, layer: int, offset: int = 0, *, dx: Array | None = None,
) -> Array:
    """dx = dy · keep / (1 - p), with the mask of forward drawn again.

    >>> import numpy as np
    >>> x = np.ones(100)
    >>> bool((backward(x, 0.5, 1, 0, 0) == forward(x, 0.5, 1, 0, 0)).all())
    True
    """
    return _mask(dy, p, seed, step, layer, offset, dx)
