"""Write mazes as problem folders: the task of the paper on Vector Policy Optimization (arXiv 2605.22817), made anew.

    python problems/maze/generate.py --out mazes --count 20 [--seed 0]

A maze has 9 x 9 tiles, grown by Prim's algorithm, with 18 to 28 more openings. Start and exit lie in opposite corners of a
random diagonal; within two tiles of one of the other corners lie 3 to 5 pieces of gold, at the last corner as many
diamonds; a tile in the centre is advertised as a bonus and gives nothing; 3 to 5 tiles inside are lava. The answer is a
walk, as text. Four objectives: completion, share of the gold, share of the diamonds, lava avoided; all are 0 unless the
exit is reached within the budget of steps, which is the longer of the two walks by way of all gold or of all diamonds,
plus 7. A maze is kept when a walk without lava fits, one detour fits, and both never do, even through lava.

Standard library only; the same seed gives the same mazes.
"""

import argparse
import itertools
import json
import random
import shutil
from collections import deque
from pathlib import Path

SIZE = 9
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))
OBJECTIVES = ("completion", "gold", "diamonds", "lava")
SLACK = 7


def grow(rng):
    """Return the open passages, as pairs of neighbouring tiles."""
    start = (rng.randrange(SIZE), rng.randrange(SIZE))
    inside, passages = {start}, set()
    frontier = [(start, tile) for tile in neighbours(start)]
    while frontier:
        tile, other = frontier.pop(rng.randrange(len(frontier)))
        if other not in inside:
            inside.add(other)
            passages.add(frozenset((tile, other)))
            frontier += [(other, further) for further in neighbours(other) if further not in inside]
    tiles = itertools.product(range(SIZE), repeat=2)
    walls = sorted({frozenset((tile, other)) for tile in tiles for other in neighbours(tile)} - passages, key=sorted)
    return passages | set(rng.sample(walls, rng.randint(18, 28)))


def neighbours(tile):
    places = [(tile[0] + down, tile[1] + right) for down, right in STEPS]
    return [(row, column) for row, column in places if 0 <= row < SIZE and 0 <= column < SIZE]


def distances(passages, start, forbidden=()):
    """Return the steps from a tile to every tile that can be reached."""
    found, queue = {start: 0}, deque([start])
    while queue:
        tile = queue.popleft()
        for other in neighbours(tile):
            if other not in found and other not in forbidden and frozenset((tile, other)) in passages:
                found[other] = found[tile] + 1
                queue.append(other)
    return found


def tour(passages, start, end, items, forbidden=()):
    """Return the steps of the shortest walk from start by way of all items to the end, or None."""
    far = {tile: distances(passages, tile, forbidden) for tile in (start, *items)}
    best = {(start, frozenset()): 0}
    for _ in items:
        longer = {}
        for (tile, seen), steps in best.items():
            for item in set(items) - seen:
                if item in far[tile]:
                    key, cost = (item, seen | {item}), steps + far[tile][item]
                    longer[key] = min(cost, longer.get(key, cost))
        best = longer
    whole = [steps + far[tile][end] for (tile, _), steps in best.items() if end in far[tile]]
    return min(whole, default=None)


def maze(rng):
    """Return one maze, or None when it is not kept."""
    passages = grow(rng)
    corners = [(0, 0), (0, SIZE - 1), (SIZE - 1, SIZE - 1), (SIZE - 1, 0)]
    turn = rng.randrange(4)
    start, first, end, second = corners[turn:] + corners[:turn]
    taken = {start, end, (SIZE // 2, SIZE // 2)}
    spread = []
    for corner in (first, second):
        near = [
            tile
            for tile in itertools.product(range(SIZE), repeat=2)
            if abs(tile[0] - corner[0]) + abs(tile[1] - corner[1]) <= 2
        ]
        spread.append(rng.sample(near, rng.randint(3, 5)))
        taken |= set(spread[-1])
    inner = [tile for tile in itertools.product(range(1, SIZE - 1), repeat=2) if tile not in taken]
    lava = rng.sample(inner, rng.randint(3, 5))
    gold, diamonds = spread
    tours = [tour(passages, start, end, items, lava) for items in (gold, diamonds)]
    if None in tours:
        return None
    budget = max(tours) + SLACK
    both = tour(passages, start, end, [*gold, *diamonds])
    if both <= budget:
        return None
    openings = [
        [
            [list(step) for step in STEPS if frozenset((tile, (tile[0] + step[0], tile[1] + step[1]))) in passages]
            for tile in ((row, column) for column in range(SIZE))
        ]
        for row in range(SIZE)
    ]
    return {
        "start": start,
        "exit": end,
        "gold": sorted(gold),
        "diamonds": sorted(diamonds),
        "lava": sorted(lava),
        "budget": budget,
        "open": openings,
    }


def drawing(found):
    """Return the maze as text."""
    marks = {tuple(found["start"]): "S", tuple(found["exit"]): "E", (SIZE // 2, SIZE // 2): "B"}
    for name, letter in (("gold", "G"), ("diamonds", "D"), ("lava", "X")):
        marks |= dict.fromkeys(map(tuple, found[name]), letter)
    lines = ["+" + "--+" * SIZE]
    for row in range(SIZE):
        tiles, floor = "|", "+"
        for column in range(SIZE):
            ways = found["open"][row][column]
            tiles += f" {marks.get((row, column), '.')}"[:2] + (" " if [0, 1] in ways else "|")
            floor += ("  " if [1, 0] in ways else "--") + "+"
        lines += [tiles, floor]
    return "\n".join(lines)


STATEMENT = """\
Walk through this maze from S to E in at most {budget} steps.

```text
{drawing}
```

A walk is a line of the letters U, D, L and R (up, down, left, right). A step through a wall makes the walk worthless, and so
does not reaching E. On the way, collect gold (G) and diamonds (D), step on the bonus tile (B), and keep off lava (X).
"""


def write(found, folder, name):
    """Write a maze as a problem folder."""
    folder.mkdir(parents=True)
    statement = STATEMENT.format(budget=found["budget"], drawing=drawing(found))
    spec = {"name": name, "statement": statement, "entry": "stdin", "language": "text", "comparison": "checker"}
    (folder / "problem.yaml").write_text(json.dumps(spec, indent=1) + "\n")  # JSON is YAML
    tests = [{"id": name, "stdin": name, "expected": json.dumps(found)} for name in OBJECTIVES]
    (folder / "tests.jsonl").write_text("".join(json.dumps(test) + "\n" for test in tests))
    (folder / "initial_program.txt").write_text("U\n")
    shutil.copy(Path(__file__).with_name("checker.py"), folder / "checker.py")


def mazes(count, seed):
    """Return so many mazes that are kept."""
    rng = random.Random(seed)
    found = []
    while len(found) < count:
        made = maze(rng)
        if made is not None:
            found.append(made)
    return found


def main():
    """Write the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the problem folders go")
    parser.add_argument("--count", type=int, default=20, help="how many mazes")
    parser.add_argument("--seed", type=int, default=0, help="of the mazes")
    given = parser.parse_args()
    for number, found in enumerate(mazes(given.count, given.seed)):
        name = f"maze-{given.seed}-{number:03d}"
        write(found, given.out / name, name)
    print(f"{given.count} mazes in {given.out}")


if __name__ == "__main__":
    main()
