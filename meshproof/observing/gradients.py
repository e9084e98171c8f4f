"""The gradients of the first batch, before any optimizer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax

from meshproof.contract import Leaves, Tree
from meshproof.measures.layout import LeafLayout
from meshproof.observing.layouts import layout_of_tree
from meshproof.observing.members import canonical
from meshproof.observing.seen import Facet, Failed, Seen, Unseen
from meshproof.observing.state import host
from meshproof.observing.subject import Subject

DIGITS = {"complex": "float32", "complex64": "float32", "complex128": "float64"}
"""The floats that complex numbers are made of: of Python's they are, beside an array, float32 or wider."""


@dataclass(frozen=True)
class Gradients(Facet):
    """Of the first batch. ``unchecked`` are those of ``shard_map`` with ``check_vma=False``.

    ``promotions`` is what tracing them raises where JAX may not promote dtypes implicitly. The optimizer is not asked:
    optax itself raises a decay rate to an integer step count.
    """

    promotions: Seen[tuple[str, ...]]
    values: Seen[Leaves]
    layout: Seen[tuple[LeafLayout, ...]]
    unchecked: Seen[Leaves]


def observe_gradients(subject: Subject, state: Any) -> Gradients:
    """The gradients of a state."""
    gradients, promotions, mode = _gradients(subject, state)
    values = subject.then(gradients, subject.host)
    layout = subject.then(gradients, lambda tree: layout_of_tree(subject, "gradients", tree))
    with jax.numpy_dtype_promotion(mode):  # the same, not traced anew
        unchecked = subject.attempt(
            lambda: host(subject.strategy.unchecked_gradients(state, subject.batches[0])), "unchecked_gradients"
        )
    return Gradients(promotions=promotions, values=values, layout=layout, unchecked=unchecked)


def _gradients(subject: Subject, state: Any) -> tuple[Seen[Tree], Seen[tuple[str, ...]], Any]:
    """The gradients, the implicit promotion that tracing them takes, if it takes one, and JAX's mode in which it could.

    A truth value or a whole number that meets floats of one dtype, as a mask or a count in a product, is none: what
    comes out has their dtype. Nor are floats that meet complex numbers of their digits. What else is promoted behind it
    is not seen.
    """

    def run() -> Seen[Tree]:
        return subject.attempt(
            lambda: canonical(subject.ask("gradients", state, subject.batches[0]), "gradients"), "gradients"
        )

    with jax.numpy_dtype_promotion("strict"):
        strict = run()
    if isinstance(strict, Failed) and "promotion" in strict.reason:
        return run(), (strict.reason,) if widens(strict.reason) else (), "standard"
    return strict, strict if isinstance(strict, Unseen) else (), "strict"


def widens(refused: str) -> bool:
    """Whether JAX refuses more than truth values beside one dtype, or whole numbers beside one of floats, or complex
    numbers of as many digits beside these.

    So does what names no two dtypes, in words that are not known here.
    """
    named = set(re.findall(r"'(\w+)'", refused))
    names = {DIGITS.get(name, name) for name in named}
    numbers = names - {"bool"}
    whole = {name for name in numbers if "int" in name}
    return len(named) < 2 or (len(numbers) > 1 and len(numbers - whole) != 1)
