"""A trainer that is begun hundreds of times: from drawn start values, from longer ones, with other keys."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

NUMBERS = (jax.Array, np.ndarray, np.generic, int, float)
"""What a leaf may be of which no more than its value counts."""


class Alike:
    """A trainer whose states have all but their arrays in common, so that its step is traced once for all of them.

    A ``load`` that makes an optimizer makes functions, which are static to ``jit`` (in an NNX module, or as the ``tx``
    of a ``TrainState``), and no two of which are equal: each of its states would be traced, lowered and looked up.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.structures: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def load(self, parameters: Any) -> Any:
        """The state, with what is no array from the first that had the same leaves. As it is where a leaf is no number,
        or where two are one array: the modules that hold it may be one, which they would not be any more."""
        state = self.inner.load(parameters)
        paths, structure = jax.tree_util.tree_flatten_with_path(state)
        held = [leaf for _, leaf in paths]
        arrays = [id(leaf) for leaf in held if isinstance(leaf, jax.Array)]
        if len(set(arrays)) < len(arrays) or not all(isinstance(leaf, NUMBERS) for leaf in held):
            return state
        kinds = tuple((path, np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for path, leaf in paths)
        first = self.structures.setdefault(kinds, structure)
        try:
            return state if structure == first else jax.tree.unflatten(first, held)
        except Exception:  # what is static need be no more comparable than a NumPy array
            return state
