"""The guide that learns: its objective by hand, several processes, and that the policy is left."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from report_frames import ROWS, a_study, changed, figure_of
from trainers import assert_same_run, small_trainer, unbroken_and_resumed

from sage.exhibits.training import CURVE_COLUMNS, LearnedGuideFigure, learned_curves
from sage.method.guides import Moment, Noise, Signals, guide_log_factors
from sage.method.learned_guide import LEARNED, LearnedGuide, Network, inputs_of
from sage.runtime.faults import Damaged
from sage.study import Algorithm, Guide
from sage.study.exhibit import Surroundings

pytestmark = [pytest.mark.timeout(4000)]

PLAIN: dict[str, Any] = {"title": "x", "loss": "grpo", "kl": "reverse", "estimator": "k3"}
ROW = PLAIN | {"guide": "learned"}
SEEDS = ("seed1", "seed2")
MOMENT = Moment(0, 10, Noise("0"))


def alone(values: torch.Tensor) -> torch.Tensor:
    return values


def tokens(seed: int = 0, rows: int = 8, length: int = 6) -> tuple[Signals, torch.Tensor, Any]:
    """Random signals of ragged completions, log-probs of the reference, and advantages."""
    numbers = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (rows, 1), generator=numbers)
    drawn = [torch.rand(rows, length, generator=numbers) for _ in range(3)]
    signals = Signals(-3 * drawn[0], 2 * drawn[1], (torch.arange(length) < lengths).long())
    return signals, -4 * drawn[2], torch.randn(rows, generator=numbers)


def test_q_is_exactly_one_at_the_start() -> None:
    signals, _, _ = tokens()
    logs = guide_log_factors(LearnedGuide(), signals, MOMENT, 0.6, 1.4)
    assert torch.equal(logs, torch.zeros_like(logs))


def test_what_the_network_sees() -> None:
    """Two of three tokens have loss: the first is at 0 and the second at 1."""
    signals = Signals(
        log_probs=torch.tensor([[math.log(0.5), 0.0, -9.0]]),
        entropies=torch.tensor([[1.0, 0.0, 3.0]]),
        mask=torch.tensor([[1, 1, 0]]),
    )
    expected = torch.tensor([[math.log1p(math.log(2)), math.log(2), 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(inputs_of(signals)[0, :2], expected)
    one = torch.ones(1, 1)
    assert inputs_of(Signals(-one, one, one))[0, 0, 2] == 0.0  # a single token is the first


def test_the_network_by_hand() -> None:
    """One unit that sees the entropy alone: log q = 0.5 tanh(2 log(1 + H) - 1) + 0.1."""
    hidden = torch.tensor([[0.0, 2.0, 0.0]])
    network = Network(hidden, torch.tensor([-1.0]), torch.tensor([0.5]), torch.tensor(0.1))
    seen = torch.tensor([[0.7, math.log1p(1.5), 0.3]])
    expected = 0.5 * math.tanh(2 * math.log(2.5) - 1) + 0.1
    assert network.log_q(seen).item() == pytest.approx(expected)


def test_a_step_follows_the_gradient_of_the_objective() -> None:
    guide = LearnedGuide(units=5, strength=0.7, balance=3.0, learning_rate=0.05)
    parts = [tokens(seed) for seed in range(2)]
    for _ in range(3):  # away from the start, where most gradients are 0
        for signals, reference, advantages in parts:
            guide.observe(signals, reference, advantages)
        guide.end_step(alone)
    network = guide._made(None)
    f, gain = [], []
    for signals, reference, advantages in parts:
        guide.observe(signals, reference, advantages)
        inside = signals.mask.bool()
        f.append(network.log_q(inputs_of(signals))[inside])
        gain.append((advantages[:, None] * (1 - reference.exp()))[inside])
    values, gains = torch.cat(f), torch.cat(gain)
    objective = (values * gains).mean() - values.square().mean() / 1.4 - 1.5 * values.mean() ** 2
    wanted = torch.autograd.grad(-objective, network.weights)
    got: list[torch.Tensor] = []
    guide._optimizer.step = lambda: got.extend(w.grad.clone() for w in network.weights)
    guide.end_step(alone)
    assert max(each.abs().max() for each in wanted) > 0.01
    torch.testing.assert_close(got, list(wanted), rtol=1e-4, atol=1e-6)


def test_it_learns_the_maximum_of_its_objective() -> None:
    """Half the tokens are of right completions, and unlikely for the reference (π_ref = 0.2), half
    of wrong ones (0.6), and their entropies tell which. With strength 0.5 and balance 3
    f = 0.5 (A u - 3 m), where m = 0.25 (0.8 - 0.4 - 6 m) = 0.04: 0.34 and -0.26.
    """
    guide = LearnedGuide(strength=0.5, balance=3.0, learning_rate=0.02)
    signals = Signals(-torch.ones(2, 2), torch.tensor([[2.0] * 2, [0.1] * 2]), torch.ones(2, 2))
    reference = torch.tensor([[0.2, 0.2], [0.6, 0.6]]).log()
    for _ in range(600):
        guide.observe(signals, reference, torch.tensor([1.0, -1.0]))
        guide.end_step(alone)
    logs = guide.factors(signals, MOMENT).log()
    torch.testing.assert_close(logs, torch.tensor([[0.34] * 2, [-0.26] * 2]), rtol=0, atol=0.005)


def together(count: int) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Functions for `count` threads, each of which adds a tensor up over all of them."""
    barrier, values = Barrier(count), [torch.empty(0)] * count

    def total(place: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def add_up(own: torch.Tensor) -> torch.Tensor:
            values[place] = own
            barrier.wait()
            result = torch.stack(values).sum(0)
            barrier.wait()
            return result

        return add_up

    return map(total, range(count))


def test_processes_hold_the_network_of_one() -> None:
    """Each has half the completions; one of them once has no token with loss."""
    whole, halves = LearnedGuide(), [LearnedGuide(), LearnedGuide()]
    totals = list(together(2))

    def learn(guide: LearnedGuide, rows: slice, total: Any) -> None:
        for step in range(3):
            signals, reference, advantages = tokens(step)
            mask = signals.mask.clone()
            if step == 1:
                mask[4:] = 0
            own = Signals(signals.log_probs[rows], signals.entropies[rows], mask[rows])
            guide.observe(own, reference[rows], advantages[rows])
            guide.end_step(total)

    learn(whole, slice(None), alone)
    with ThreadPoolExecutor(2) as pool:
        places = (slice(0, 4), slice(4, 8))
        list(pool.map(learn, halves, places, totals))
    ours, theirs = (guide.state_dict() for guide in halves)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    torch.testing.assert_close(ours["weights"], whole.state_dict()["weights"], rtol=1e-4, atol=1e-6)
    assert ours["sums"] == pytest.approx(whole.state_dict()["sums"])


def test_it_continues_from_its_state() -> None:
    guide, other = LearnedGuide(), LearnedGuide()

    def learn(guide: LearnedGuide, seed: int) -> None:
        guide.observe(*tokens(seed))
        guide.end_step(alone)

    learn(guide, 0)
    other.load_state_dict(guide.state_dict())
    for each in (guide, other):
        learn(each, 1)
    torch.testing.assert_close(guide.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_what_was_seen_is_summed_up() -> None:
    guide = LearnedGuide()
    signals = Signals(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), torch.ones(1, 2))
    guide.observe(signals, torch.zeros(1, 2), torch.ones(1))
    guide.end_step(alone)
    learned = guide.learned()
    assert learned["tokens"] == 2
    half = math.log(2) / 2
    assert learned["mean"] == pytest.approx({"surprisal": 0.0, "entropy": half, "position": 0.5})
    wide = {"surprisal": 0.0, "entropy": half, "position": 0.5}
    assert learned["deviation"] == pytest.approx(wide)


def guide_file(folder: Path, **changes: Any) -> Path:
    """A policy's folder with a guide of one unit that sees the entropy alone (see above)."""
    learned = {
        "weights": [[[0.0, 2.0, 0.0]], [-1.0], [0.5], 0.1],
        "tokens": 9.0,
        "mean": {"surprisal": 0.2, "entropy": math.log1p(1.5), "position": 0.5},
        "deviation": {"surprisal": 0.1, "entropy": 0.3, "position": 0.3},
    }
    folder.mkdir(parents=True)
    (folder / LEARNED).write_text(json.dumps(learned | changes))
    return folder


def test_curves_are_the_networks_over_each_signal(tmp_path: Path) -> None:
    folders = [guide_file(tmp_path / "models/tiny/grpo_learned" / name) for name in SEEDS]
    curves = learned_curves(folders, {"grpo_learned": [0.6, 1.4]})
    assert list(curves.columns) == CURVE_COLUMNS
    assert curves.groupby(["algorithm", "seed", "signal"]).size().tolist() == [41] * 6
    first = curves[curves["seed"] == 1].set_index("signal")
    at_mean = math.exp(0.5 * math.tanh(2 * math.log(2.5) - 1) + 0.1)
    for signal, end in (("surprisal", math.expm1(0.5)), ("position", 1.0)):
        assert first.loc[signal, "value"].iloc[[0, -1]].tolist() == pytest.approx([0.0, end])
        assert first.loc[signal, "q"].tolist() == pytest.approx([min(at_mean, 1.4)] * 41)
    entropy = first.loc["entropy"]
    assert entropy["value"].iloc[-1] == pytest.approx(math.expm1(math.log1p(1.5) + 0.9))
    for value, q in zip(entropy["value"], entropy["q"], strict=True):
        unclamped = math.exp(0.5 * math.tanh(2 * math.log1p(value) - 1) + 0.1)
        assert q == pytest.approx(min(max(unclamped, 0.6), 1.4), rel=1e-5)
    assert entropy["q"].iloc[0] < 0.8
    assert entropy["q"].iloc[-1] == pytest.approx(1.4)


@pytest.mark.parametrize("weights", [[], [[[1.0]], [0.0], [0.0], 0.0], "none"])
def test_a_damaged_guide_is_named(tmp_path: Path, weights: Any) -> None:
    folder = guide_file(tmp_path / "grpo_learned/seed1", weights=weights)
    with pytest.raises(Damaged, match=r"guide.json: holds no learned guide .+ delete"):
        learned_curves([folder], {"grpo_learned": [0.6, 1.4]})


def test_only_rows_that_learn_can_be_shown() -> None:
    figure = LearnedGuideFigure(
        kind="learned_guide", title="Learned", model="tiny", algorithms=["a", "b", "c"]
    )
    rows = {
        "a": PLAIN | {"guide": "learned"},
        "b": PLAIN | {"guide": "branch"},
        "c": PLAIN,
    }
    algorithms = {name: Algorithm.model_validate(row) for name, row in rows.items()}
    around = Surroundings(algorithms, drawn=1, eval_seeds=1)
    assert list(figure.faults(around)) == [
        ("algorithms", "'b' has branch, not the guide 'learned'"),
        ("algorithms", "'c' has no guide, not the guide 'learned'"),
    ]


def test_the_figure_has_a_line_for_each_seed_and_their_mean() -> None:
    row = Algorithm.model_validate(PLAIN | {"guide": "learned"})
    figure = LearnedGuideFigure(
        kind="learned_guide", title="Learned", model="tiny", algorithms=["learned"]
    )
    study = a_study()
    exhibits = {**study.study.exhibits, "learned": figure}
    study = changed(study, {**ROWS, "learned": row}, exhibits=exhibits)
    points = [
        ("learned", seed, signal, place, float(place), 1.0 + seed * place / 10)
        for seed in (1, 2)
        for signal in ("entropy", "surprisal", "position")
        for place in range(3)
    ]
    axes = figure_of(study, "learned", curves=pd.DataFrame(points, columns=CURVE_COLUMNS)).axes
    assert [each.get_title(loc="left") for each in axes] == ["Entropy", "Surprisal", "Position"]
    for each in axes:
        flat, *seeds, mean = each.lines
        assert list(flat.get_ydata()) == [1.0, 1.0]
        assert [line.get_ydata()[-1] for line in seeds] == pytest.approx([1.2, 1.4])
        assert mean.get_ydata()[-1] == pytest.approx(1.3)
        assert mean.get_linewidth() > seeds[0].get_linewidth()
    assert plt.get_fignums() == []


def gradients(trainer: Any, batch: dict[str, Any]) -> list[torch.Tensor]:
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, batch).backward()
    return [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


def test_the_policy_gets_no_gradient_through_the_network(parent: Path, tmp_path: Path) -> None:
    """At the start the gradient is that of the plain KL; later that of its q as a constant."""
    trainer = small_trainer(parent, ROW, tmp_path)
    plain = small_trainer(parent, PLAIN, tmp_path)
    trainer.model.train()
    plain.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    torch.manual_seed(0)
    reference = batch["ref_per_token_logps"]
    batch["ref_per_token_logps"] = reference + 0.3 * torch.randn_like(reference)
    at_start, without = (gradients(each, batch) for each in (trainer, plain))
    assert max(each.abs().max() for each in without) > 0
    assert all(map(torch.equal, at_start, without))

    guide = trainer.shaping.guide
    shown: list[torch.Tensor] = []
    for _ in range(20):
        gradients(trainer, batch)
        trainer.end_step()
    weights = guide._made(None).weights
    state = guide.state_dict()["weights"]
    factors = guide.factors
    guide.factors = lambda *given: shown.append(factors(*given)) or shown[-1]
    later = gradients(trainer, batch)
    (q,) = shown
    assert (q - 1).abs().max() > 0.01
    constant = {
        **batch,
        "ref_per_token_logps": batch["ref_per_token_logps"]
        + q.clamp(0.6, 1.4).log() * batch["completion_mask"],
    }
    for left, right in zip(later, gradients(plain, constant), strict=True):
        torch.testing.assert_close(left, right)
    assert all(weight.grad is None for weight in weights)
    torch.testing.assert_close(state, guide.state_dict()["weights"], rtol=0, atol=0)


def test_micro_batches_teach_what_the_whole_step_does(parent: Path, tmp_path: Path) -> None:
    states = []
    for parts in (1, 4):
        trainer = small_trainer(parent, ROW, tmp_path, steps=2, micro_batches=parts)
        trainer.train()
        states.append(trainer.shaping.guide.state_dict())
    assert states[0]["sums"][0] == states[1]["sums"][0] > 0
    torch.testing.assert_close(states[0]["weights"], states[1]["weights"], rtol=1e-3, atol=1e-5)
    assert states[0]["weights"][2].abs().max() > 0


def test_a_resumed_run_equals_an_unbroken_one(parent: Path, tmp_path: Path) -> None:
    whole, resumed = unbroken_and_resumed(parent, ROW, tmp_path)
    assert_same_run(whole, resumed)
    last = whole.state.log_history[-2]
    assert last["sage/q_max"] - last["sage/q_min"] > 1e-3


def test_evaluation_teaches_nothing(parent: Path, tmp_path: Path) -> None:
    trainer = small_trainer(parent, ROW, tmp_path)
    trainer.model.eval()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    trainer.compute_loss(trainer.model, batch)
    assert trainer.shaping.guide._seen == []


@pytest.mark.parametrize("settings", [{"units": 0}, {"strength": 0.0}, {"balance": -1.0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"settings.{next(iter(settings))}: must be"):
        Guide(kind="learned", settings=settings)
