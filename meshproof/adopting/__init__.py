"""A trainer's contract, written down by what was seen of it: what looks wrong becomes a question, not a promise."""
