"""Online bin packing: into which of the open bins does the next item go?"""


# EVOLVE-BLOCK-START
def score(item, rest):
    """Return how good it is to put an item of this size into a bin with this much free space.

    Both are whole numbers, 1 <= item <= rest <= 50. The item goes into the open bin with the highest score, the oldest of
    several; a new bin is opened when no open one has room.
    """
    return 0


# EVOLVE-BLOCK-END
