"""Square a number."""


# EVOLVE-BLOCK-START
def solve(n):
    return n + n


# EVOLVE-BLOCK-END
