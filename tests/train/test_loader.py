import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.data.shards import Tokens
from llmlab.train.loader import Loader, held_out_batches, prefetched

count_and_T = st.integers(1, 9).flatmap(lambda T: st.tuples(st.integers(T + 1, 200), st.just(T)))


def counting(count):
    return Tokens([np.arange(count, dtype=np.uint8)])


@given(count_and_T, st.integers(1, 5), st.integers(0, 1000), st.integers(0, 2**32))
def test_targets_are_the_next_tokens_and_batches_repeat(sizes, B, k, seed):
    count, T = sizes
    x, y = Loader(counting(count), B, T, seed).batch(k)
    assert x.shape == y.shape == (B, T)
    assert x.dtype == y.dtype == np.int32
    assert (y == x + 1).all()
    again, _ = Loader(counting(count), B, T, seed).batch(k)
    assert (again == x).all()


@given(count_and_T, st.integers(0, 3))
def test_an_epoch_reads_no_token_twice_and_nearly_all(sizes, epoch):
    count, T = sizes
    loader = Loader(counting(count), 1, T, seed=5)
    n = loader.windows
    seen = np.concatenate([loader.batch(k)[0].ravel() for k in range(epoch * n, (epoch + 1) * n)])
    assert len(np.unique(seen)) == len(seen)
    assert len(seen) > count - 2 * T - 1


def test_epochs_and_seeds_differ():
    order = [Loader(counting(200), 8, 8, seed).batch(k)[0].tolist() for seed in (0, 1) for k in (0, 3)]
    assert len({str(o) for o in order}) == 4


def test_too_few_tokens_are_refused():
    with pytest.raises(ValueError, match="T = 8 needs at least 9 tokens, got 8"):
        Loader(counting(8), 1, 8, 0)


def test_held_out_windows_follow_each_other_up_to_the_limit():
    batches = list(held_out_batches(counting(100), B=4, T=8, limit=50))
    assert [x.shape for x, _ in batches] == [(4, 8), (2, 8)]
    assert np.concatenate([x.ravel() for x, _ in batches]).tolist() == list(range(48))
    assert np.concatenate([y.ravel() for _, y in batches]).tolist() == list(range(1, 49))
    assert sum(x.size for x, _ in held_out_batches(counting(100), 4, 8, 10**6)) == 96


def test_prefetching_keeps_the_order_and_ends_its_thread():
    assert list(prefetched(lambda k: k * k, 3, 8)) == [9, 16, 25, 36, 49]
    batches = prefetched(lambda k: k, 0, 10**9)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    batches.close()
    assert not [t for t in threading.enumerate() if t.name == "loader"]


def test_an_error_in_the_loader_arrives_at_its_place():
    def make(k):
        if k == 2:
            raise OSError("disk gone")
        return k

    batches = prefetched(make, 0, 5)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(OSError, match="disk gone"):
        next(batches)
