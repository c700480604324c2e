"""The maze generator: what every kept maze promises, and what walks are worth."""

import itertools
import json
import runpy
from pathlib import Path

import pytest

from evolve import problem as problems
from evolve.grading import TestGrader
from sandbox.inprocess import InProcessSandbox

MAZE = Path(__file__).parent.parent.parent / "problems" / "maze"
generator = runpy.run_path(str(MAZE / "generate.py"))
checker = runpy.run_path(str(MAZE / "checker.py"))
LETTERS = {(-1, 0): "U", (1, 0): "D", (0, -1): "L", (0, 1): "R"}


@pytest.fixture(scope="module")
def mazes():
    return generator["mazes"](12, 3)


def passages(maze):
    return {
        frozenset(((row, column), (row + step[0], column + step[1])))
        for row, column in itertools.product(range(9), repeat=2)
        for step in maze["open"][row][column]
    }


def path(maze, stops, forbidden=()):
    """The letters of a shortest walk from stop to stop."""
    letters = ""
    for start, end in itertools.pairwise(stops):
        far = generator["distances"](passages(maze), end, forbidden)
        place = start
        while place != end:
            place, letter = next(
                (other, LETTERS[other[0] - place[0], other[1] - place[1]])
                for other in generator["neighbours"](place)
                if far.get(other, 99) == far[place] - 1 and frozenset((place, other)) in passages(maze)
            )
            letters += letter
    return letters


def check(maze, letters):
    return {name: checker["check"](name, json.dumps(maze), letters) for name in ("completion", "gold", "diamonds", "lava")}


def test_the_numbers_of_the_paper(mazes):
    for maze in mazes:
        assert abs(maze["start"][0] - maze["exit"][0]) == abs(maze["start"][1] - maze["exit"][1]) == 8
        assert 80 + 18 <= len(passages(maze)) <= 80 + 28
        for name in ("gold", "diamonds", "lava"):
            assert 3 <= len(maze[name]) <= 5
        corners = {(0, 0), (0, 8), (8, 0), (8, 8)} - {tuple(maze["start"]), tuple(maze["exit"])}
        for name in ("gold", "diamonds"):
            (near,) = [
                corner
                for corner in corners
                if all(abs(row - corner[0]) + abs(column - corner[1]) <= 2 for row, column in maze[name])
            ]
            corners -= {near}


def test_one_detour_fits_and_both_never_do(mazes):
    tour = generator["tour"]
    for maze in mazes:
        start, end, lava = tuple(maze["start"]), tuple(maze["exit"]), [tuple(tile) for tile in maze["lava"]]
        one = {
            name: tour(passages(maze), start, end, [tuple(item) for item in maze[name]], lava)
            for name in ("gold", "diamonds")
        }
        assert maze["budget"] == max(one.values()) + 7
        both = tour(passages(maze), start, end, [tuple(item) for item in (*maze["gold"], *maze["diamonds"])])
        assert both > maze["budget"]


def test_a_tour_is_the_shortest_of_all_orders(mazes):
    maze = mazes[0]
    start, end, items = tuple(maze["start"]), tuple(maze["exit"]), [tuple(item) for item in maze["gold"]]
    far = {tile: generator["distances"](passages(maze), tile) for tile in (start, *items)}
    every = [
        sum(far[one][other] for one, other in itertools.pairwise((start, *order, end)))
        for order in itertools.permutations(items)
    ]
    assert generator["tour"](passages(maze), start, end, items) == min(every)


def test_what_walks_are_worth(mazes):
    maze = mazes[0]
    start, end, lava = tuple(maze["start"]), tuple(maze["exit"]), [tuple(tile) for tile in maze["lava"]]
    safe = check(maze, path(maze, [start, end], lava))
    assert (safe["completion"], safe["lava"]) == (1, 1)
    item = tuple(maze["gold"][0])
    by_gold = check(maze, path(maze, [start, item, end], lava))
    assert by_gold["gold"] >= 1 / len(maze["gold"])
    burnt = path(maze, [start, tuple(maze["lava"][0]), end])
    if len(burnt) <= maze["budget"]:
        assert check(maze, burnt)["lava"] == 0
    assert set(check(maze, path(maze, [start, item])).values()) == {0}
    assert set(check(maze, "go right").values()) == {0}
    wall = next(
        letter for step, letter in LETTERS.items() if list(step) not in maze["open"][maze["start"][0]][maze["start"][1]]
    )
    assert set(check(maze, wall + path(maze, [start, end], lava)).values()) == {0}
    there = LETTERS[tuple(maze["open"][start[0]][start[1]][0])]
    back = {"U": "D", "D": "U", "L": "R", "R": "L"}[there]
    assert set(check(maze, (there + back) * maze["budget"] + path(maze, [start, end], lava)).values()) == {0}


def test_the_same_seed_gives_the_same_mazes():
    assert generator["mazes"](2, 5) == generator["mazes"](2, 5)
    assert generator["mazes"](1, 5) != generator["mazes"](1, 6)


async def test_a_maze_is_a_problem_whose_answer_is_text(tmp_path, mazes):
    generator["write"](mazes[0], tmp_path / "maze", "maze")
    problem = problems.load(tmp_path / "maze")
    assert problem.language == "text"
    assert [name for name, _ in problem.dimensions] == ["completion", "gold", "diamonds", "lava"]
    grader = TestGrader(problem, InProcessSandbox())
    maze = mazes[0]
    walk = path(maze, [tuple(maze["start"]), tuple(maze["exit"])], [tuple(tile) for tile in maze["lava"]])
    score = await grader.score(walk + "\n")
    assert score.scores[0] == score.scores[3] == 1
    assert score.ran
    assert not (await grader.score("U\n" * 50)).scores.any()
