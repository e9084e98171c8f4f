"""How fast: the same cases, timed."""
