"""Hypothesis times no example: on a busy machine any of them may be slow."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
