"""A table of rules, logical axis to mesh axis: the first rule of a name counts, and a name without one is refused.

                              Flax NNX 0.12                     Flax Linen 0.12                  here
    two rules of one name     the last counts                   the first whose axis is free     the first counts
    no rule                   taken for a mesh axis: an error,  whole, without a word            an error
                              or split, if one is called so
    two names, one mesh axis  an error without the array        the second whole, without a      an error
                                                                word
    (name, None)              whole                             whole                            whole

A misspelt name is a name without a rule: where that means whole, every device holds all of the array, the numbers are
right, and nobody is told. So a table is settled before a framework reads it: one rule for each name that a model has.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshproof.contract import Tree, leaves
from reference_impl.mapping import Mapping, MeshAxes

Rule = tuple[str, str | MeshAxes | None]
"""A logical axis, and the mesh axis or axes that split it; ``None`` where it is whole."""


def settle(table: Iterable[Rule], axes: Tree) -> Mapping:
    """One rule for each logical axis of these leaves, a nested dict of tuples of names.

    Raises ``ValueError`` where a name has no rule, and where two names of one leaf land on one mesh axis.
    """
    first: dict[str, str | MeshAxes] = {}
    for name, physical in table:
        first.setdefault(name, () if physical is None else physical)
    for path, names in leaves(axes):
        for name in names:
            if name not in first:
                raise ValueError(
                    f"logical axis {name!r} of {path} {names} has no rule: expected one of {', '.join(sorted(first))}, "
                    f"or a rule ({name!r}, None), which leaves it whole"
                )
    settled = Mapping(**first)
    settled.specs(axes)
    return settled
