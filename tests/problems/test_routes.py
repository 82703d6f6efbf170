"""Routes through mazes: hand-worked mazes, the generator, grading by walking, the corpus."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hostile import hostile_texts

from sage.exhibits import load_study
from sage.grading import STATUSES
from sage.problems.record import Problem
from sage.problems.route_sets import RoutesCorpus, Terrain, draw_trip, walk
from sage.problems.routes import (
    Trip,
    around,
    correct_routes,
    detour,
    forks,
    gold_answer,
    moves_to,
    named_cell,
    read_gold,
    render,
    split_of_trip,
    turned_alike,
    ways_on,
)
from sage.prompting import SOLUTION_CLOSE, SOLUTION_OPEN, completion
from sage.study import ScratchBase
from sage.tasks import Grader, draw_problems
from sage.tasks.routes import RoutesSet, allowed_moves, arrives, read_route, settle_route
from sage.training.pretrain import draw_documents

# Three rows of three cells; the middle row is open in its last cell only:
#   aa ab ac
#   ## ## bc
#   ca cb cc
WALLED = Trip(side=3, closed=frozenset({3, 4}), start=0, goal=6, moves=4)
GOLD = gold_answer(WALLED)
LAND = {"side": 5, "walls": 1, "gaps": [1, 2], "boulders": 0, "distances": [3, 4]}
LAND |= {"detours": [0, 1], "spare": 1}
SMALL = Terrain(**LAND)
CORPUS = RoutesCorpus(**LAND, source="routes", toward=0.5)
SET = {"source": "routes", "title": "Routes", "count": 40, "seed": 5, **LAND, "boulders": 1}


def cells(text: str, side: int = 3) -> tuple[int, ...]:
    """`aa ab` as numbers."""
    found = [named_cell(name, side) for name in text.split()]
    assert None not in found
    return tuple(cell for cell in found if cell is not None)


def land(**changes: Any) -> Terrain:
    return Terrain.model_validate({**LAND, **changes})


def in_block(answer: str) -> str:
    return f"{SOLUTION_OPEN}{answer}{SOLUTION_CLOSE}"


@pytest.fixture(scope="module")
def grader() -> Grader:
    return Grader()


class TestMaze:
    def test_a_corner_has_three_neighbours_an_edge_five_and_the_middle_eight(self) -> None:
        assert around(3)[0] == cells("ab ba bb")
        assert around(3)[1] == cells("aa ac ba bb bc")
        assert around(3)[4] == cells("aa ab ac ba bc ca cb cc")

    def test_the_way_round_the_wall_takes_four_moves_two_more_than_without(self) -> None:
        moves = moves_to(3, WALLED.closed, WALLED.goal)
        assert moves == {6: 0, 7: 1, 8: 2, 5: 2, 1: 3, 2: 3, 0: 4}
        assert detour(3, WALLED.start, WALLED.goal, moves[WALLED.start]) == 2
        assert detour(7, cells("aa", 7)[0], cells("bf", 7)[0], 6) == 1

    def test_a_closed_maze_has_no_way(self) -> None:
        assert moves_to(3, frozenset({3, 4, 5}), 6) == {6: 0, 7: 1, 8: 2}
        assert list(correct_routes(Trip(3, frozenset({3, 4, 5}), 0, 6, 9))) == []

    def test_the_one_shortest_route_and_those_with_a_move_to_spare(self) -> None:
        assert list(correct_routes(WALLED)) == [cells("aa ab bc cb ca")]
        spare = Trip(3, WALLED.closed, 0, 6, 5)
        assert set(correct_routes(spare)) == {
            cells("aa ab bc cb ca"),
            cells("aa ab ac bc cb ca"),
            cells("aa ab bc cc cb ca"),
        }

    def test_correct_routes_are_those_that_a_walk_over_all_cells_finds(self) -> None:
        rng = random.Random(3)
        for _ in range(5):
            trip = draw_trip(land(side=4, gaps=[1], boulders=1, distances=[2, 3]), rng)
            open_cells = [cell for cell in range(16) if cell not in trip.closed]
            every = {
                route
                for length in range(2, trip.moves + 2)
                for route in itertools.permutations(open_cells, length)
                if route[0] == trip.start and arrives(trip, route)
            }
            assert set(correct_routes(trip)) == every

    def test_a_fork_is_where_more_than_one_cell_may_follow(self) -> None:
        # From aa only ab is open; from ab ac and bc; from bc ac, cb, cc; the goal is the end.
        assert forks(WALLED, cells("aa ab bc cb ca")) == [1, 2, 3]
        assert ways_on(WALLED, cells("aa ab bc cb")) == list(cells("ca cc"))
        assert forks(WALLED, cells("aa ab bc cc cb")) == [1, 2]  # no move is left behind cb
        assert forks(Trip(3, WALLED.closed, 0, 6, 9), cells("aa ab ac bc cc cb ca")) == [1, 3]


class TestText:
    def test_a_problem_names_start_goal_moves_and_closed_cells(self) -> None:
        assert render(WALLED) == "From aa to ca in 4 moves, closed: ba bb"
        assert render(Trip(3, frozenset(), 0, 8, 2)) == "From aa to cc in 2 moves, closed: none"

    def test_the_gold_answer_holds_the_trip_and_a_shortest_route_to_read(self) -> None:
        assert read_gold(GOLD) == WALLED
        assert RoutesSet.readable(GOLD) == "aa ab bc cb ca"
        open_maze = Trip(3, frozenset(), 0, 8, 3)
        assert read_gold(gold_answer(open_maze)) == open_maze

    FAULTS: ClassVar = [{"side": 10**9}, {"side": "x"}, {"goal": "zz"}, {"closed": 3}]
    FAULTY: ClassVar = [json.dumps({**json.loads(GOLD), **fault}) for fault in FAULTS]

    @pytest.mark.parametrize("text", ["", "aa ab", "[1]", "null", "{}", *FAULTY])
    def test_other_text_is_no_gold_answer(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"gold answer|Expecting|literal"):
            read_gold(text)
        assert settle_route(text, "aa ab") == "gold_unparsed"


class TestGrading:
    @pytest.mark.parametrize("between", [" ", ", ", " -> ", "→", "-"])
    def test_a_route_that_can_be_walked_is_correct(self, grader: Grader, between: str) -> None:
        answer = between.join(["aa", "ab", "bc", "cb", "ca"])
        for text in (answer, f" {answer}\n"):
            assert grader.grade(in_block(text), GOLD, "route").status == "correct"

    @pytest.mark.parametrize(
        ("answer", "fault"),
        [
            ("aa ab bc cb", "does not arrive"),
            ("ab bc cb ca", "starts elsewhere"),
            ("aa bb ca", "crosses the wall"),
            ("aa bc cb ca", "jumps"),
            ("aa ab ac bc cb ca", "takes a move too many"),
            ("aa ab aa ab bc cb ca", "goes back"),
            ("aa aa ab bc cb ca", "stands still"),
            ("aa ab bc cb ca cb", "goes past the goal"),
            ("aa ab bc cd cb ca", "leaves the maze"),
            ("ca", "is the goal alone"),
            ("zz", "is no cell"),
        ],
    )
    def test_a_route_that_breaks_a_rule_is_wrong(
        self, grader: Grader, answer: str, fault: str
    ) -> None:
        assert grader.grade(in_block(answer), GOLD, "route").status == "wrong", fault

    @pytest.mark.parametrize("answer", ["abc", "aa ab!", "4", "AA AB BC", "aa (ab)", "aa ab bc 5"])
    def test_other_words_are_unparsed(self, grader: Grader, answer: str) -> None:
        assert grader.grade(in_block(answer), GOLD, "route").status == "unparsed"

    def test_no_cell_may_be_visited_twice(self) -> None:
        open_maze = Trip(3, frozenset(), 0, 2, 5)
        assert arrives(open_maze, cells("aa bb bc ac"))
        assert not arrives(open_maze, cells("aa bb aa ab ac"))

    def test_moves_are_allowed_to_open_neighbours_only(self) -> None:
        # ab-bc is a move, bc-bb ends in the wall, bb-ca starts there, ca-aa is a jump.
        assert allowed_moves(WALLED, cells("ab bc bb ca aa")) == [True, False, False, False]
        assert allowed_moves(WALLED, read_route("aa zz ab", 3) or []) == [False, False]

    def test_hostile_completions_get_a_status_and_never_reward(
        self, grader: Grader, tmp_path: Path
    ) -> None:
        rng = random.Random(1)
        texts = hostile_texts("http://127.0.0.1:9", tmp_path / "canary")
        letters = "abcz -→>,;\n\t\x00\u202e\U0001f600\ud800{}\"'\\"
        texts += ["".join(rng.choices(letters, k=rng.randint(1, 520))) for _ in range(600)]
        texts += ["aa " * 166, "aa" * 240, "-" * 499, ">" * 100_000, "aa ab " * 50_000, " " * 400]
        route = "aa ab bc cb ca"
        texts += [f"{route} or {route}", f"{route}.", f"{GOLD}", f"{route}\n{route}"]
        samples = [(in_block(text), GOLD, "route") for text in texts]
        assert len(samples) > 600
        verdicts = grader.grade_many(samples)
        assert {verdict.status for verdict in verdicts} <= set(STATUSES)
        assert Counter(verdict.status for verdict in verdicts)["correct"] == 0
        assert not (tmp_path / "canary").exists()


class TestGenerator:
    def test_trips_are_solvable_and_as_the_terrain_asks(self) -> None:
        rng = random.Random(0)
        for _ in range(100):
            trip = draw_trip(SMALL, rng)
            shortest = moves_to(5, trip.closed, trip.goal)[trip.start]
            assert shortest in SMALL.distances
            assert trip.moves == shortest + 1
            assert detour(5, trip.start, trip.goal, shortest) in SMALL.detours
            assert len(trip.closed) in (3, 4)  # a wall of five cells with one or two gaps
            lines = {cell // 5 for cell in trip.closed}, {cell % 5 for cell in trip.closed}
            assert 1 in map(len, lines)
            assert next(correct_routes(trip))

    def test_walls_do_not_touch(self) -> None:
        rng = random.Random(0)
        for _ in range(50):
            trip = draw_trip(land(side=7, walls=2, gaps=[2], distances=[4], detours=[0, 1, 2]), rng)
            rows = sorted(Counter(cell // 7 for cell in trip.closed).items())
            columns = sorted(Counter(cell % 7 for cell in trip.closed).items())
            first, second = rows if len(rows) == 2 else columns
            assert second[0] - first[0] > 1
            assert first[1] == second[1] == 5

    def test_boulders_are_closed_cells_beside_the_wall(self) -> None:
        rng = random.Random(0)
        terrain = land(side=7, gaps=[2], boulders=3, distances=[4])
        assert {len(draw_trip(terrain, rng).closed) for _ in range(50)} == {5 + 3}

    def test_what_cannot_be_drawn_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no route of 9 moves in 10,000 mazes"):
            draw_trip(land(side=3, walls=0, gaps=[1], distances=[9]), random.Random(0))
        tiny = {"side": 3, "walls": 0, "gaps": [1], "distances": [2], "boulders": 0}
        with pytest.raises(ValueError, match=r"'few': only \d+ of 40 different problems"):
            draw_problems("few", {**SET, **tiny, "split": "test"})

    def test_the_same_seed_gives_the_same_problems_and_another_seed_others(self) -> None:
        first, again = (draw_problems("a", {**SET, "split": "test"}) for _ in range(2))
        other = draw_problems("a", {**SET, "split": "test", "seed": 6})
        assert first == again
        assert len(first) == 40
        assert {p.problem for p in first} != {p.problem for p in other}
        assert all(isinstance(p, Problem) and p.kind == "route" for p in first)
        assert first[0].problem == render(read_gold(first[0].answer))

    def test_turned_and_mirrored_mazes_are_alike_and_share_their_half(self) -> None:
        # A quarter turn: row r, column c becomes row c, column 2 - r.
        turned = Trip(3, frozenset(cells("ab bb")), *cells("ac aa"), moves=4)
        mirrored = Trip(3, frozenset(cells("bb bc")), *cells("ac cc"), moves=6)
        back = Trip(3, WALLED.closed, WALLED.goal, WALLED.start, 4)
        for alike in (turned, mirrored, back):
            assert turned_alike(alike) == turned_alike(WALLED)
            assert split_of_trip(alike) == split_of_trip(WALLED)
        for other in (
            Trip(3, frozenset(cells("ba")), *cells("aa ca"), moves=4),
            Trip(3, WALLED.closed, *cells("aa cb"), moves=4),
            Trip(4, frozenset(cells("ba bb", 4)), *cells("aa ca", 4), moves=4),
        ):
            assert turned_alike(other) != turned_alike(WALLED)

    def test_the_splits_share_no_maze(self) -> None:
        train, test = (draw_problems("a", {**SET, "split": split}) for split in ("train", "test"))
        keys = [{turned_alike(read_gold(p.answer)) for p in half} for half in (train, test)]
        assert len(keys[0]) == len(keys[1]) == 40
        assert not keys[0] & keys[1]


class TestCorpus:
    def test_a_walk_to_the_goal_is_shortest_and_a_random_one_keeps_the_rules(self) -> None:
        rng = random.Random(0)
        for _ in range(50):
            trip = draw_trip(SMALL, rng)
            assert arrives(trip, route := walk(trip, 1.0, rng))
            assert len(route) == trip.moves
            route = walk(trip, 0.0, rng)
            assert all(allowed_moves(trip, route))
            assert len(set(route)) == len(route)
            ends = route[-1] == trip.goal or len(route) == trip.moves + 1
            assert ends or not ways_on(trip, route)

    def test_a_random_walk_takes_each_way_as_often(self) -> None:
        rng = random.Random(0)
        trip = Trip(3, frozenset(), 0, 8, 1)
        drawn = Counter(walk(trip, 0.0, rng)[1] for _ in range(3_000))
        assert drawn.keys() == set(around(3)[0])
        assert all(abs(count - 1_000) < 110 for count in drawn.values())  # 4 deviations

    def test_solutions_are_walks_of_training_mazes_in_one_token_a_cell(self) -> None:
        stream = CORPUS.worked(7)
        for worked in itertools.islice(stream, 100):
            assert worked.working == ""
            assert worked.answer.startswith(" ")
            asked = worked.problem.split()
            route = read_route(worked.answer, 5)
            assert route is not None
            assert route[0] == named_cell(asked[1], 5)
            closed = frozenset(cells(worked.problem.split("closed:")[1], 5))
            trip = Trip(5, closed, *cells(f"{asked[1]} {asked[3]}", 5), moves=int(asked[5]))
            assert all(allowed_moves(trip, route))
            assert split_of_trip(trip) == "train"
        assert completion("", " aa ab").endswith(f"{SOLUTION_OPEN} aa ab{SOLUTION_CLOSE}")

    def test_the_same_seed_gives_the_same_corpus(self) -> None:
        first, again, other = (
            list(itertools.islice(CORPUS.worked(seed), 30)) for seed in (7, 7, 8)
        )
        assert first == again != other


class TestSettings:
    def test_the_study_holds_mazes_that_can_be_drawn(self) -> None:
        root = Path(__file__).parents[2]
        study = load_study(str(root / "reports/mini/routes/study.yaml"), root / "config").study
        for name, each in study.problems.items():
            assert len(draw_problems(name, {**each.model_dump(), "count": 5})) == 5
        base = study.models["tiny"].base
        assert isinstance(base, ScratchBase)
        assert isinstance(base.corpus, RoutesCorpus)
        few = base.pretraining.model_copy(update={"documents": 9})
        documents = draw_documents(base.corpus, few)
        assert all(problem.startswith("Problem: From ") for problem, _ in documents)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"walls": 3}, "walls 3: a maze of side 5 holds at most 2"),
            ({"gaps": [6]}, "gaps must be at most the side 5, not"),
            ({"boulders": 6}, "boulders must be at most the side 5, not 6"),
            ({"gaps": [0]}, "greater than or equal to 1"),
            ({"side": 13}, "less than or equal to 12"),
            ({"side": 2}, "greater than or equal to 3"),
            ({"spare": -1}, "greater than or equal to 0"),
            ({"distances": []}, "at least 1 item"),
        ],
    )
    def test_walls_and_gaps_that_do_not_fit_are_refused(
        self, change: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            RoutesSet.model_validate({**SET, "split": "test", **change})
