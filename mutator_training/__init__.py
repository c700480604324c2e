"""Train the mutator on what the search finds (needs the `train` extra)."""
