"""A trainer that is begun hundreds of times: from drawn start values, from longer ones, with other keys."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from itertools import zip_longest
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import jax
import numpy as np

ARRAYS = (jax.Array, np.ndarray)
NUMBERS = (*ARRAYS, np.generic, int, float)
"""What a leaf may be of which no more than its value counts."""

NODES = "_pytree__state"
"""A key of the table in which a Flax module keeps which of its attributes are nodes."""


LIBRARIES = ("optax", "flax", "jax")
"""What their functions close over, and their objects hold, no run changes: as a schedule its list of parts."""


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
        """The state, with what is no array from the first that had the same leaves, if that cannot be told from its
        own. As it is where a leaf is no number, or where two are one array: the modules that hold it may be one, which
        they would not be any more."""
        state = self.inner.load(parameters)
        paths, structure = jax.tree_util.tree_flatten_with_path(state)
        held = [leaf for _, leaf in paths]
        arrays = [id(leaf) for leaf in held if isinstance(leaf, ARRAYS)]
        if len(set(arrays)) < len(arrays) or not all(isinstance(leaf, NUMBERS) for leaf in held):
            return state
        kinds = tuple((path, np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for path, leaf in paths)
        first = self.structures.setdefault(kinds, structure)
        try:
            shared = structure != first and _same_structure(structure, first)
            return jax.tree.unflatten(first, held) if shared else state
        except Exception:  # what is static need be no more comparable than a NumPy array
            return state


def _same_structure(one: Any, other: Any) -> bool:
    """Whether what is static in two pytrees does the same, whichever of both is taken."""
    ours, theirs = one.node_data(), other.node_data()
    if ours is None or theirs is None:
        return ours is theirs
    (kind, static), (its_kind, its_static) = ours, theirs
    same = static == its_static if kind is dict else _same(static, its_static)
    return kind is its_kind and same and _each(_same_structure, one.children(), other.children())


def _same(one: Any, other: Any) -> bool:
    """Whether two values do the same: functions of the same code and the same values closed over, what is made of such,
    and equal values that nothing changes. Of an object that a run may change, each run has its own."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return NODES in one and one == other
    if isinstance(one, tuple | FunctionType | partial | MethodType) or _is_frozen(one):
        return _each(_same, _parts(one), _parts(other))
    compares: Any = type(one).__eq__
    if compares is object.__eq__:
        return _is_of_library(type(one)) and _each(_same, _kept(vars(one)), _kept(vars(other)))
    return hash(one) == hash(other) and bool(one == other)


def _parts(value: Any) -> Iterable[Any]:
    """What a value does is told by these."""
    if isinstance(value, FunctionType):
        code, library = value.__code__, _is_of_library(value)
        closed = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        options = (value.__defaults__, tuple((value.__kwdefaults__ or {}).items()), tuple(vars(value).items()))
        changes = _rebinds(code) and not library
        return (code, object() if changes else None, *options, *(map(_kept, closed) if library else closed))
    if isinstance(value, partial):
        return (value.func, value.args, tuple(value.keywords.items()))
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__)
    return value if isinstance(value, tuple) else [getattr(value, field.name) for field in fields(value)]


def _kept(value: Any) -> Any:
    """A list or a dict that nothing changes."""
    return tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value


def _is_of_library(value: Any) -> bool:
    return value.__module__.partition(".")[0] in LIBRARIES


def _each(same: Callable[[Any, Any], bool], ours: Iterable[Any], theirs: Iterable[Any]) -> bool:
    pairs = list(zip_longest(ours, theirs, fillvalue=object()))
    return all(same(one, other) for one, other in pairs)


def _is_frozen(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and type(value).__dataclass_params__.frozen  # type: ignore[attr-defined, no-any-return]


@lru_cache
def _rebinds(code: CodeType) -> bool:
    """Whether a function gives a variable that it closes over another value, as one that counts its calls does."""
    return any(step.opname == "STORE_DEREF" and step.argval in code.co_freevars for step in dis.get_instructions(code))
