"""What a token is drawn from: each setting's distribution, the draw, and streams of uniforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampled import sampling
from scipy.stats import chisquare
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from sage.sampling.distribution import draw, next_token_probabilities, stream_uniforms
from sage.sampling.interface import stream_key

pytestmark = [pytest.mark.usefixtures("one_thread")]

P = [0.5, 0.3, 0.15, 0.05]
FILTERS = [
    ({}, P),
    ({"top_k": 2}, [0.625, 0.375, 0, 0]),
    ({"top_p": 0.8}, [0.625, 0.375, 0, 0]),
    ({"top_p": 0.81}, [50 / 95, 30 / 95, 15 / 95, 0]),
    ({"min_p": 0.25}, [50 / 95, 30 / 95, 15 / 95, 0]),
    ({"temperature": 0.5}, [25 / 36.5, 9 / 36.5, 2.25 / 36.5, 0.25 / 36.5]),
    ({"temperature": 0.5, "top_k": 3, "top_p": 0.9}, [25 / 34, 9 / 34, 0, 0]),
]


@pytest.mark.parametrize(("settings", "expected"), FILTERS)
def test_each_setting_gives_its_distribution(
    settings: dict[str, float], expected: list[float]
) -> None:
    """By hand, and by the frequencies of 20,000 draws (chi-square)."""
    found = next_token_probabilities(torch.tensor([P]).log(), sampling(**settings))
    assert found[0].tolist() == pytest.approx(expected)
    uniforms = [stream_uniforms(f"chi-square/{settings}/{i}", 1)[0] for i in range(20_000)]
    tokens = draw(found.expand(20_000, -1), torch.tensor(uniforms))
    counts = torch.bincount(tokens, minlength=4).numpy()
    possible = np.array(expected) > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], 20_000 * np.array(expected)[possible]).pvalue > 1e-3


def test_settings_mean_what_they_mean_in_transformers() -> None:
    logits = torch.randn(50, 40, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 3
    theirs = logits.clone()
    for warper in (
        TemperatureLogitsWarper(0.7),
        TopKLogitsWarper(20),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.05),
    ):
        theirs = warper(torch.zeros(50, 1, dtype=torch.long), theirs)
    ours = next_token_probabilities(
        logits, sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05)
    )
    torch.testing.assert_close(ours, theirs.softmax(dim=-1))
    assert ((ours > 0).sum(dim=-1) < 20).any()


def test_draw_inverts_the_distribution_function() -> None:
    p = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.double).expand(5, -1)
    uniforms = torch.tensor([0.0, 0.2499, 0.25, 0.9, 1.0 - 1e-16], dtype=torch.double)
    assert draw(p, uniforms).tolist() == [1, 1, 3, 3, 3]


def test_draws_from_shared_rows_are_those_from_copies() -> None:
    random = torch.Generator().manual_seed(0)
    p = torch.rand(5, 9, generator=random, dtype=torch.float64)
    p[1, 4:] = 0.0
    p = p / p.sum(dim=-1, keepdim=True)
    rows = torch.randint(5, (4000,), generator=random)
    uniforms = torch.rand(4000, generator=random, dtype=torch.float64)
    uniforms[0], rows[0] = 1.0 - 2.0**-53, 1
    assert torch.equal(draw(p, uniforms, rows), draw(p[rows], uniforms))


def test_a_row_that_is_not_a_number_spoils_no_other() -> None:
    p = torch.full((4, 8), 1 / 8, dtype=torch.float64)
    uniforms = torch.tensor([0.1, 0.3, 0.5, 0.99])
    clean = draw(p, uniforms)
    for bad in ([0], [1], [2, 3], [0, 1, 2, 3]):
        broken = p.clone()
        broken[bad] = torch.nan
        expected = clean.clone()
        expected[bad] = 7
        assert torch.equal(draw(broken, uniforms), expected)


def test_a_stream_depends_on_its_name_alone() -> None:
    assert (stream_uniforms("a", 3) == stream_uniforms("a", 9)[:3]).all()
    assert (stream_uniforms("a", 3) != stream_uniforms("b", 3)).all()
    assert stream_uniforms("a", 1)[0] == pytest.approx(0.16441050396696144)


def test_every_part_of_a_name_makes_another_stream() -> None:
    base = ("m", 1, "b", "p", 0, 0)
    others = [("n", *base[1:]), ("m", 2, *base[2:]), ("m", 1, "c", *base[3:])]
    others += [("m", 1, "b", "q", 0, 0), ("m", 1, "b", "p", 1, 0), ("m", 1, "b", "p", 0, 1)]
    others += [("m", 1, "b", 'p", 0', 0, 0), ("m", 1, "b|p", "", 0, 0)]
    assert len({stream_key(*name) for name in [base, *others]}) == 9
