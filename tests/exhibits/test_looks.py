"""Every method has a look of its own, in every study the same."""

from method_entries import ROWS, derived
from report_frames import ROOT, a_study, changed

from sage.exhibits import load_study
from sage.rendering.lines import line_styles
from sage.study import Algorithm


def test_an_algorithm_looks_the_same_in_every_study_and_unlike_the_others() -> None:
    few = line_styles(a_study(algorithms=("grpo", "no_kl")))
    many = line_styles(a_study(algorithms=("bnpo", "branch", "no_kl", "grpo")))
    assert few["base"].colour == "grey"
    assert {name: many[name] for name in few} == few
    assert len(set(many.values())) == len(many)


def test_every_algorithm_there_is_has_its_own_look() -> None:
    rows = {name: Algorithm.model_validate(entry) for name, entry in ROWS.items()}
    styles = line_styles(changed(a_study(algorithms=("branch",)), rows))
    assert len(styles) > 18
    assert len({(look.colour, look.dashes, look.marker) for look in styles.values()}) == len(styles)
    paper = line_styles(load_study("paper", ROOT / "config"))  # curves may have no markers
    named = {name for name in paper if "-" not in name}
    assert len({(paper[name].colour, paper[name].dashes) for name in named}) == len(named)


def test_where_the_kl_term_stands_shows_in_the_colour() -> None:
    names = ("grpo", "grpo_random", "grpo_token", "grpo_branch")
    rows = {name: Algorithm.model_validate(ROWS[name]) for name in names}
    for name in names:
        guide = ROWS[name].get("guide")
        moved = derived("grpo_k1_reward", **({"guide": guide} if guide else {}))
        rows[f"{name}_k1_reward"] = Algorithm.model_validate(moved)
    styles = line_styles(a_study().model_copy(update={"algorithms": rows, "variants": []}))
    assert len({look.colour for look in styles.values()}) == 1 + len(rows)


def test_cells_of_an_ablation_take_no_look_from_another_row() -> None:
    with_cells = a_study()
    rows = {name: with_cells.algorithms[name] for name in ("grpo", "branch")}
    without = line_styles(with_cells.model_copy(update={"algorithms": rows, "variants": []}))
    styles = line_styles(with_cells)
    assert {name: styles[name] for name in without} == without
    assert len(styles) == len(without) + 3


def test_no_two_methods_are_alike() -> None:
    """Not even of the study with the most methods."""
    study = load_study("rivals", ROOT / "config")
    styles = line_styles(study)
    assert len(styles) > 25
    assert len({(look.colour, look.marker) for look in styles.values()}) == len(styles)
