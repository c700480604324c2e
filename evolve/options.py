"""What a search is told, how it stands, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from evolve.answers import MAX_PROGRAM
from evolve.history import Totals
from evolve.population import Member, Shape
from evolve.selection import Ratios


@dataclass(frozen=True, slots=True)
class Options:
    """What the user decides about a search; stored with the run.

    Attributes:
        prompts: P, prompts of one generation, each with a parent of its own; as many are under way at any time.
        completions: G, completions of one prompt.
        answers: m, answers that each completion should hold.
        selection: parent policy, a key of `selection.POLICIES`.
        inspirations: programs shown beside the parent because they do what it can't.
        top: programs shown because they are the fittest of the island.
        diverse: programs shown because they differ: some of the fittest, some that do what the parent can't, any others.
        ratios: of the policy `openevolve`.
        population: islands, cells, archive, migration.
        retry: whether a reply without any program is answered once with the reason.
        longest: characters of a program; longer ones are unusable.
        edit_pattern: regular expression with two groups for edits of another form; None for SEARCH/REPLACE.
        edits: what a completion is asked for: whole programs (`full`), SEARCH/REPLACE edits of the parent (`diff`), or edits
            until they fail too often (`auto`). Either is understood, whatever was asked for.
        candidates: budget in answers, usable or not; None is no limit.
        tokens: budget in sampled tokens; None is no limit.
        minutes: budget in minutes of search over all resumes; None is no limit.
        generations: budget in generations; None is no limit.
        stop_when: `solved` ends the search when a program passes every visible test.
        patience: ends the search after this many candidates without a better best; None never does.
        better_by: by how much the best must rise to count as better.
        patience_metric: an evaluator's metric that must rise instead of the fitness, or `reach` its value.
        reach: ends the search when the best program's fitness is at least this; None never does.
    """

    prompts: int = 4
    completions: int = 4
    answers: int = 2
    selection: str = "lexicase"
    inspirations: int = 1
    top: int = 0
    diverse: int = 0
    ratios: Ratios = field(default_factory=Ratios)
    population: Shape = field(default_factory=Shape)
    retry: bool = True
    longest: int = MAX_PROGRAM
    edit_pattern: str | None = None
    edits: Literal["auto", "diff", "full"] = "full"
    candidates: int | None = 100
    tokens: int | None = None
    minutes: float | None = None
    generations: int | None = None
    stop_when: Literal["solved"] | None = None
    patience: int | None = None
    better_by: float = 0.0
    patience_metric: str | None = None
    reach: float | None = None

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Options:
        """Return options from the mapping that the database keeps."""
        values = dict(stored)
        if "ratios" in values:
            values["ratios"] = Ratios(**values["ratios"])
        if "population" in values:
            shape = values["population"]
            values["population"] = Shape(**{**shape, "features": tuple(shape["features"])})
        return cls(**values)


class Reason(StrEnum):
    """Why a search ended."""

    CANDIDATES = "the budget of candidates is spent"
    TOKENS = "the budget of tokens is spent"
    MINUTES = "the budget of minutes is spent"
    GENERATIONS = "the budget of generations is spent"
    SOLVED = "solved"
    REACHED = "the value that was asked for is reached"
    STAGNANT = "no better program for as long as was asked for"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Progress:
    """What an observer sees, updated in place.

    Attributes:
        totals: what the run has used so far.
        under_way: candidates recorded beyond the totals, of prompts that are not complete yet.
        best: the best program, and how many of the visible tests it passes.
        note: the last thing worth telling.
    """

    totals: Totals
    tests: int
    under_way: int = 0
    best: Member | None = None
    best_passed: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How a search ended."""

    reason: Reason
    best: int
    solved: bool
    confirmed: bool
    """The best program passes the hidden tests as well."""
    candidates: int = 0
    """That the run has used."""
