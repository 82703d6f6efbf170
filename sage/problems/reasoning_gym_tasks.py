"""The tasks of reasoning-gym that a study can name; reading a study does not need the package.

Left out is `composite`, a mixture of other tasks: a study names several problem sets instead. The
generator is in `reasoning_gym`, apart, because each of its processes would load these types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sage.fields import Strict
from sage.problems.fields import Count, GeneratorSeed, Split, Title
from sage.problems.record import Problem

# fmt: off
Task = Literal[
    "ab", "acre", "advanced_geometry", "aiw", "arc_1d", "arc_agi", "base_conversion",
    "basic_arithmetic", "bf", "binary_alternation", "binary_matrix", "bitwise_arithmetic", "boxnet",
    "caesar_cipher", "calendar_arithmetic", "chain_sum", "circuit_logic", "codeio", "coin_flip",
    "color_cube_rotation", "complex_arithmetic", "count_bits", "count_primes", "countdown",
    "course_schedule", "cryptarithm", "decimal_arithmetic", "decimal_chain_sum", "dice",
    "emoji_mystery", "family_relationships", "figlet_font", "fraction_simplification", "futoshiki",
    "game_of_life", "game_of_life_halting", "gcd", "graph_color", "group_anagrams", "gsm_symbolic",
    "intermediate_integration", "isomorphic_strings", "jugs", "kakurasu", "knight_swap",
    "knights_knaves", "largest_island", "lcm", "leg_counting", "letter_counting", "letter_jumble",
    "list_functions", "mahjong_puzzle", "manipulate_matrix", "maze", "mini_sudoku", "modulo_grid",
    "n_queens", "needle_haystack", "number_filtering", "number_format", "number_sequence",
    "number_sorting", "palindrome_generation", "palindrome_partitioning", "path_star",
    "polynomial_equations", "polynomial_multiplication", "pool_matrix", "power_function",
    "prime_factorization", "products", "propositional_logic", "puzzle24", "quantum_lock",
    "ransom_note", "rearc", "rectangle_count", "rotate_matrix", "rotten_oranges", "rubiks_cube",
    "rush_hour", "self_reference", "sentence_reordering", "shortest_path", "simple_equations",
    "simple_geometry", "simple_integration", "sokoban", "spell_backward", "spiral_matrix",
    "string_insertion", "string_manipulation", "string_splitting", "string_synthesis", "sudoku",
    "survo", "syllogism", "time_intervals", "tower_of_hanoi", "tsumego", "word_ladder",
    "word_sequence_reversal", "word_sorting", "zebra_puzzles"
]
# fmt: on


class ReasoningGymSet(Strict):
    """Problems that a task of reasoning-gym generates, graded by the task's own scorer.

    It needs a C compiler and the extra of that name,
    `python3 workflow/install.py .venv --extra reasoning-gym`. The scorer runs in a process with
    bounded time and memory. Where it evaluates the answer, one that holds more than a list or a
    formula counts as `unparsed`.
    """

    source: Literal["reasoning_gym"]
    """a task of reasoning-gym"""
    title: Title
    task: Task
    """which of them"""
    settings: dict[str, Any] = Field(default_factory=dict)
    """settings of the task, such as `{min_terms: 3}`"""
    count: Count
    seed: GeneratorSeed
    split: Split
    correct_from: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """an answer is correct from this score on; scorers give less than 1 for answers that are right
    in part or badly formatted [score]"""

    @model_validator(mode="after")
    def _settings_of_its_own(self) -> ReasoningGymSet:
        if taken := {"seed", "size"} & set(self.settings):
            raise ValueError(
                f"settings hold {', '.join(sorted(taken))}; the set's own seed and count decide"
            )
        return self

    def size(self) -> int:
        """How many problems it has."""
        return self.count

    def problems(self, name: str) -> list[Problem]:
        """The set, called `name`; raises as `reasoning_gym_problems` does."""
        from sage.problems.reasoning_gym import reasoning_gym_problems

        return reasoning_gym_problems(name, **self.model_dump(exclude={"source", "title"}))
