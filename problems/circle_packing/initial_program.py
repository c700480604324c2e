"""Pack 26 circles into the unit square."""

import math


# EVOLVE-BLOCK-START
def pack():
    """Return 26 circles (x, y, radius): inside the unit square, not overlapping, with a large sum of radii."""
    circles = []
    side = 6
    for index in range(26):
        row, column = divmod(index, side)
        circles.append(((column + 0.5) / side, (row + 0.5) / side, 0.5 / side))
    return circles


# EVOLVE-BLOCK-END


if __name__ == "__main__":
    print(math.fsum(radius for _, _, radius in pack()))
