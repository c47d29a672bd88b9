import numpy as np
import pytest

from llmlab.train.sampling import choose, sample

LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.4]))


def frequencies(**options):
    random = np.random.default_rng(0)
    drawn = [choose(LOGITS, random=random, **options) for _ in range(4000)]
    return np.bincount(drawn, minlength=4) / len(drawn)


def test_temperature_one_draws_from_the_model():
    assert frequencies(temperature=1.0, top_k=0) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.03)


def test_half_the_temperature_squares_the_probabilities():
    assert frequencies(temperature=0.5, top_k=0) == pytest.approx(np.array([1, 4, 9, 16]) / 30, abs=0.03)


def test_top_k_draws_among_the_likeliest_only():
    assert frequencies(temperature=1.0, top_k=2) == pytest.approx([0, 0, 3 / 7, 4 / 7], abs=0.03)


def test_large_logits_do_not_overflow():
    assert choose(np.array([1e4, 2e4], np.float32), 0.5, 0, np.random.default_rng(0)) == 1


def test_the_model_sees_the_last_T_tokens_and_samples_repeat():
    seen = []

    def logits(tokens):
        seen.append(tokens.tolist())
        return np.zeros((1, tokens.shape[1], 7))

    first = sample(logits, np.array([1, 2]), 4, T=3, seed=3)
    assert [len(t[0]) for t in seen] == [2, 3, 3, 3]
    assert seen[-1][0] == first[-4:-1].tolist()
    assert (first == sample(logits, np.array([1, 2]), 4, T=3, seed=3)).all()
    assert (first != sample(logits, np.array([1, 2]), 4, T=3, seed=4)).any()


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="prompt"):
        sample(lambda tokens: tokens, np.array([]), 1, T=3)
