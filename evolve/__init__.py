"""Search over programs with a language model and per-test score vectors."""
