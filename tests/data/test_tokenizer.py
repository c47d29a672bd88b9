import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlab.data import tokenizer


@given(st.text())
def test_text_comes_back(text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_ids_outside_a_byte_are_refused():
    for bad in ([256], [-1]):
        with pytest.raises(ValueError, match=r"0\.\.\.255"):
            tokenizer.decode(np.array(bad))
