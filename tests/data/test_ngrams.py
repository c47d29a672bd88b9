import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.data import dataset, ngrams


def by_dictionary(train, held_out, vocabulary, orders):
    """Witten-Bell losses, one probability at a time."""
    followers = defaultdict(Counter)
    for n in range(1, orders + 1):
        for i in range(n - 1, len(train)):
            followers[tuple(train[i - n + 1 : i])][train[i]] += 1

    def p(context, token):
        shorter = p(context[1:], token) if context else 1 / vocabulary
        if (seen := followers.get(context)) is None:
            return shorter
        return (seen[token] + len(seen) * shorter) / (seen.total() + len(seen))

    return [
        -sum(math.log(p(tuple(held_out[max(i - n + 1, 0) : i]), held_out[i])) for i in range(len(held_out)))
        / len(held_out)
        for n in range(1, orders + 1)
    ]


tokens = st.lists(st.integers(0, 3), min_size=5, max_size=40)


@given(tokens, tokens)
def test_counting_in_arrays_equals_counting_in_dictionaries(train, held_out):
    found = ngrams.losses(np.array(train), np.array(held_out), vocabulary=4, orders=3)
    wanted = by_dictionary(train, held_out, 4, 3)
    assert list(found.values()) == pytest.approx([math.log(4), *wanted])


def test_the_baselines_of_the_embedded_corpus():
    found = dataset.load(["pydoc"]).baselines()
    wanted = {"uniform": 5.545, "unigram": 3.25, "bigram": 2.31}
    wanted |= {"trigram": 1.71, "four-gram": 1.40, "five-gram": 1.32}
    assert found == pytest.approx(wanted, abs=0.05)  # the text differs a little between versions of Python


def test_a_large_vocabulary_gets_fewer_orders():
    a = np.arange(50)
    assert list(ngrams.losses(a, a, vocabulary=50257)) == [
        "uniform",
        "unigram",
        "bigram",
        "trigram",
        "four-gram",
    ]
