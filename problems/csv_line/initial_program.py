def parse(line):
    """Split at commas."""
    return line.split(",")
