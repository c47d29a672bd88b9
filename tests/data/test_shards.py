import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.data import shards
from llmlab.errors import UserError

IDS = np.array([0, 32768, 65535, 65536, 100000])


def test_ids_beyond_16_bits_come_back(tmp_path):
    shards.write_shard(tmp_path / "a.npy", IDS, vocabulary=100001)
    tokens = shards.Tokens([tmp_path / "a.npy"])
    assert tokens.read(0, 5).tolist() == IDS.tolist()


@pytest.mark.parametrize("vocabulary", [256, 65536, 100000])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_is_written(tmp_path, vocabulary):
    with pytest.raises(ValueError, match=f"0...{vocabulary - 1}"):
        shards.write_shard(tmp_path / "a.npy", IDS, vocabulary)
    with pytest.raises(ValueError, match="-1"):
        shards.write_shard(tmp_path / "a.npy", np.array([3, -1]), vocabulary)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("index", "start"),
    [(int, 5 * 2**29 - 256), (np.uint32, 5 * 2**29 - 256), (np.int64, 2**31 - 100), (np.int32, 2**31 - 100)],
)
def test_tokens_beyond_2_gib_of_a_sparse_5_gib_shard(tmp_path, index, start):
    sparse = np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.uint16, shape=(5 * 2**29,))
    written = np.arange(65_535 - 255, 65_536)
    sparse[start : start + 256] = written
    sparse.flush()
    del sparse
    tokens = shards.Tokens([tmp_path / "big.npy"])
    assert tokens.read(index(start), index(256)).tolist() == written.tolist()
    assert tokens.read(index(start - 4), index(4)).tolist() == [0, 0, 0, 0]


@given(st.lists(st.lists(st.integers(0, 255), max_size=7), min_size=1, max_size=5), st.data())
def test_reading_across_shards_equals_reading_the_whole(parts, data):
    whole = [token for part in parts for token in part]
    tokens = shards.Tokens([np.array(part, np.uint8) for part in parts])
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, len(whole) - start))
    assert tokens.read(start, length).tolist() == whole[start : start + length]
    with pytest.raises(IndexError):
        tokens.read(start, len(whole) - start + 1)


def test_a_folder_of_shards_comes_back(tmp_path):
    train = np.arange(250) % 251
    shards.write_folder(tmp_path / "t", {"train": train, "val": train[:7]}, 251, shard_tokens=100)
    assert sorted(p.name for p in (tmp_path / "t").glob("train*")) == [f"train-0000{i}.npy" for i in range(3)]
    splits, index = shards.open_folder(tmp_path / "t")
    assert splits["train"].read(90, 120).tolist() == train[90:210].tolist()
    assert (len(splits["val"]), index["vocabulary"]) == (7, 251)


def test_a_full_folder_is_not_overwritten(tmp_path):
    shards.write_folder(tmp_path, {"train": IDS, "val": IDS}, 100001)
    with pytest.raises(UserError, match="already holds token shards"):
        shards.write_folder(tmp_path, {"train": IDS, "val": IDS}, 100001)


def test_a_vocabulary_that_the_stored_width_does_not_fit_is_refused(tmp_path):
    shards.write_folder(tmp_path, {"train": IDS, "val": IDS}, 100001)
    index = json.loads((tmp_path / shards.INDEX).read_text())
    (tmp_path / shards.INDEX).write_text(json.dumps(index | {"vocabulary": 256}))
    with pytest.raises(UserError, match="uint32"):
        shards.open_folder(tmp_path)


def test_a_folder_cut_short_is_refused(tmp_path):
    shards.write_folder(tmp_path, {"train": IDS, "val": IDS}, 100001)
    (tmp_path / "val-00000.npy").unlink()
    with pytest.raises(UserError, match=r"val-00000\.npy"):
        shards.open_folder(tmp_path)
