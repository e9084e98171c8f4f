"""What ``restore`` says of a checkpoint that lacks a leaf, in Orbax's format: no other can a leaf be taken out of.

The tree is saved anew without it, by `orbax.checkpoint.v1`. A ``restore`` that does not read what that writes, as one
by ``StandardCheckpointer`` or ``CheckpointManager``, is given a copy of its own checkpoint whose tree does not list it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshproof.contract import Leaves
from meshproof.measures.numerics import bitwise
from meshproof.observing.seen import NotSupported
from meshproof.observing.state import values_of
from meshproof.observing.subject import Subject

TREE, LISTED = "_METADATA", "tree_metadata"
"""The file in which Orbax lists the leaves of a tree, and where in it."""

ARRAYS = ("jax.Array", "np.ndarray", "scalar")
"""What it calls leaves that hold something; others are empty nodes."""

DICT = 2
"""How it marks a key of a dict, whose absence renames no other."""

WHOLE = "the whole state"
"""What is restored, though the leaf is not listed."""

NAMES = ("the state restored from the whole checkpoint", "that restored without a leaf")


@dataclass(frozen=True)
class Refused:
    """The error of a ``restore`` from a checkpoint without ``leaf``: the error's text, none where it returned."""

    leaf: str
    error: str | None


def observe_missing(subject: Subject, folder: Path, values: Leaves) -> tuple[Refused, ...] | NotSupported:
    """Of the checkpoint ``whole`` in a folder, without its first leaf, and without its last. ``values`` are those of
    the state that is restored from it."""
    anew = _saved_anew(subject, folder)
    return anew if isinstance(anew, tuple) else _unlisted(subject, folder, values) or anew


def _saved_anew(subject: Subject, folder: Path) -> tuple[Refused, ...] | NotSupported:
    try:
        from orbax.checkpoint import v1 as ocp

        saved = jax.tree.map(_on_host, ocp.load(folder / "whole"))
        flat, _ = jax.tree_util.tree_flatten_with_path(saved)
    except Exception as error:
        return NotSupported(
            f"save writes no checkpoint from which Orbax can take a leaf ({type(error).__name__}): let it write one "
            f"tree by orbax.checkpoint.v1.save"
        )
    ocp.save(folder / "again", saved)
    if refusal := _error(subject, folder / "again"):
        return NotSupported(
            f"restore does not read what orbax.checkpoint.v1.save writes of the same tree, so that no leaf can be "
            f"taken from it: {refusal.splitlines()[0]}"
        )
    paths = [path for path, _ in flat if _named(_missed(path))]
    found = []
    for number, path in enumerate(first_and_last(paths)):
        ocp.save(folder / str(number), _without(saved, path))
        found.append(Refused(_named(_missed(path)), _error(subject, folder / str(number))))
    return tuple(found) or NotSupported("the checkpoint is a list, whose entries have no names to miss")


def _unlisted(subject: Subject, folder: Path, values: Leaves) -> tuple[Refused, ...]:
    """None where no tree is listed, where ``restore`` refuses the checkpoint as soon as that file is written anew, and
    where it finds the leaf all the same: its array is still there."""
    whole, copy = folder / "whole", folder / "unlisted"
    trees = [(file, *tree) for file in whole.rglob(TREE) if (tree := _listed(file))]
    if not trees:
        return ()
    file, listed, names = max(trees, key=lambda tree: len(tree[2]))

    def error_without(leaf: str) -> str | None:
        shutil.copytree(whole, copy)
        left = {path: of for path, of in listed[LISTED].items() if path != leaf}
        (copy / file.relative_to(whole)).write_text(json.dumps(listed | {LISTED: left}), encoding="utf-8")
        try:
            held = values_of(subject.strategy.restore(copy), subject.model)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(copy)
        return WHOLE if bitwise(values, held, "state", NAMES).passed else None

    if error_without("") != WHOLE:
        return ()
    found = (Refused(names[path], error_without(path)) for path in first_and_last([*names]))
    return tuple(each for each in found if each.error != WHOLE)


def _listed(file: Path) -> tuple[dict[str, Any], dict[str, str]] | None:
    """What such a file holds, and the names of the leaves of dicts that it lists, by path. ``None``: it is no such."""
    try:
        listed: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return listed, {
            path: "/".join(each["key"] for each in of["key_metadata"])
            for path, of in listed[LISTED].items()
            if of["value_metadata"]["value_type"] in ARRAYS and of["key_metadata"][-1]["key_type"] == DICT
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def first_and_last(paths: list[Any]) -> Iterator[Any]:
    """The first and the last of some paths, once if they are one."""
    yield from dict.fromkeys((*paths[:1], *paths[-1:]))


def _on_host(leaf: Any) -> Any:
    """Half the time to save. Typed keys stay: NumPy has no such dtype."""
    return leaf if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def _without(tree: Any, path: tuple[Any, ...]) -> Any:
    """Nested dicts and lists, as Orbax returns them, without the leaf at a path; of a list without its last entry,
    for without another one all behind it would have other names."""
    key, *rest = path
    entry = getattr(key, "key", getattr(key, "idx", None))
    children = dict(tree) if isinstance(tree, dict) else dict(enumerate(tree))
    if not isinstance(tree, dict) and not rest:
        entry = max(children)
    if rest:
        children[entry] = _without(children[entry], tuple(rest))
    else:
        del children[entry]
    return children if isinstance(tree, dict) else type(tree)(children.values())


def _missed(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an error can name where the leaf at a path is taken: of an entry of a list that list, which is shorter."""
    return path if hasattr(path[-1], "key") else path[:-1]


def _named(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _error(subject: Subject, folder: Path) -> str | None:
    try:
        subject.strategy.restore(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
