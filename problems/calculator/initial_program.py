def calc(text):
    """Add non-negative integers, such as "1 + 2"."""
    total = 0
    for part in text.split("+"):
        total += int(part)
    return total
