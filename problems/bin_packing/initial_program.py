"""Online bin packing: into which of the open bins does the next item go?

The item goes into the open bin with the highest score, the oldest of several with the same; a new bin is opened when none
has room. Sizes are whole numbers, 1 <= item <= rest <= 50.
"""


# EVOLVE-BLOCK-START
def score(item, rest):
    return 0


# EVOLVE-BLOCK-END
