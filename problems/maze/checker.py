"""Judge a walk through a maze: the objective that a test is about, in [0, 1]; everything is 0 unless the exit is reached."""

import json

MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def walk(maze, text):
    """Return the tiles of a walk up to the exit, or None when it breaks a rule or doesn't reach the exit in the budget."""
    moves = [letter for letter in text.upper() if letter in MOVES]
    if any(letter not in MOVES and letter not in " ,\t\r\n" for letter in text.upper()):
        return None
    place = tuple(maze["start"])
    seen = [place]
    for letter in moves[: maze["budget"]]:
        down, right = MOVES[letter]
        if [down, right] not in maze["open"][place[0]][place[1]]:
            return None
        place = (place[0] + down, place[1] + right)
        seen.append(place)
        if place == tuple(maze["exit"]):
            return seen
    return None


def check(input, expected, got):
    maze = json.loads(expected)
    seen = walk(maze, got)
    if seen is None:
        return 0.0
    visited = set(seen)
    if input == "completion":
        return 1.0
    if input == "lava":
        return float(not visited & {tuple(tile) for tile in maze["lava"]})
    items = [tuple(tile) for tile in maze[input]]
    return sum(tile in visited for tile in items) / len(items)
