"""Online bin packing: into which bin does the next item go?"""


# EVOLVE-BLOCK-START
def priority(item, rests):
    """Score the bins for one item.

    Args:
        item: size of the item, a whole number.
        rests: free space of each bin that the item fits into, in the order in which the bins were opened; the last one is
            an empty bin.

    Returns:
        One number per bin; the item goes into the bin with the highest, the first of several.
    """
    return [-index for index in range(len(rests))]


# EVOLVE-BLOCK-END
