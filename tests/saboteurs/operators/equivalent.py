"""Mutants that are no faults, each with the argument why no clause can tell it from the healthy strategy."""

EQUIVALENT: dict[str, dict[str, str]] = {}
"""Operator to the ids of healthy cases, and the argument for each."""
