import pytest

from llmlab.data import corpora
from llmlab.errors import UserError


def test_pydoc_is_about_466_kb_of_english():
    text = corpora.load(["pydoc"]).text
    assert 400_000 < len(text) < 550_000
    assert text.startswith(b'The "assert" statement')


def test_files_folders_and_patterns_are_joined_in_sorted_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.txt").write_text("third")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "skip.bin").write_bytes(b"\x00")
    assert corpora.load([str(tmp_path)]).text == b"first\n\nthird\n\nsecond"
    assert corpora.load([str(tmp_path / "*.txt")]).text == b"second"
    assert corpora.load([str(tmp_path / "b.txt"), str(tmp_path / "a.md")]).text == b"second\n\nfirst"


def test_a_corpus_is_named_for_a_folder(tmp_path):
    path = tmp_path / "My Novel (draft).txt"
    path.write_text("x")
    assert corpora.load([str(path)]).name == "my-novel-draft"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "missing.txt", "no such file or folder"),
        (lambda path: path, "no .txt, .md, .rst file"),
        (lambda path: (path / "empty.txt", (path / "empty.txt").write_text(" \n"))[0], "empty"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path, make, message):
    with pytest.raises(UserError, match=message) as caught:
        corpora.load([str(make(tmp_path))])
    assert "\n" not in str(caught.value)


def test_without_a_network_tinyshakespeare_says_what_to_do(monkeypatch, tmp_path):
    import pooch

    def refuse(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    with pytest.raises(UserError, match=r"needs a network .*--data pydoc"):
        corpora.load(["tinyshakespeare"])


def test_a_fetched_file_must_match_its_checksum(monkeypatch, tmp_path):
    import pooch

    def fetch(url, output_file, pooch):
        with open(output_file, "wb") as file:
            file.write(b"not Shakespeare")

    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: fetch)
    with pytest.raises(UserError, match="could not fetch"):
        corpora.load(["tinyshakespeare"])
    assert not list(tmp_path.glob("*.txt"))
