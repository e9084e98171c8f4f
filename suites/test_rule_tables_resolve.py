"""A table of rules is read in one order here and in another there; what it does not name is whole, and nobody hears."""

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType

from meshproof.contract import leaves

from .applicability import splits


@pytest.fixture
def several(case, judge):
    """The first leaf with two logical axes, with its path; and every logical axis of the model."""
    judge.needs(case, "logical_axes", "resolve")
    found = [(path, axes) for path, axes in leaves(case.strategy.logical_axes)]
    path, (one, other, *_) = next((path, axes) for path, axes in found if len(set(axes)) > 1)
    return path, one, other, dict.fromkeys(name for _, axes in found for name in axes)


def table(names, *rules):
    """Rules, and after them one for each other name: it is whole."""
    ruled = {name for name, _ in rules}
    return (*rules, *((name, None) for name in names if name not in ruled))


def entries(case, path, rules):
    """What splits each dimension of a leaf, by logical axis."""
    spec = dict(leaves(case.strategy.resolve(rules)))[path]
    axes = dict(leaves(case.strategy.logical_axes))[path]
    split = [(entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in (*spec, *[None] * len(axes))]
    return dict(zip(axes, split, strict=False))


@pytest.mark.clause("SHD-10", applies=splits("parameters"))
def test_the_first_rule_counts(case, several, judge):
    """The first of several rules for one logical axis MUST count. (Two tables with the same two rules for an axis of a
    parameter: to a mesh axis, and to none, which leaves it whole; and the other way round.)"""
    path, one, _, names = several
    mesh_axis = next(iter(case.mesh))
    problems = []
    for first, second, expected in ((mesh_axis, None, (mesh_axis,)), (None, mesh_axis, ())):
        rules = table(names, (one, first), (one, second))
        seen = entries(case, path, rules)
        if seen != dict.fromkeys(seen, ()) | {one: expected}:
            problems.append(
                f"{path}, of the rules {one} → {first} and then {one} → {second}: expected {told({one: expected})}, "
                f"saw {told(seen)}; the first rule of a name counts"
            )
    judge.clear(problems)


@pytest.mark.clause("SHD-10", applies=splits("parameters"))
def test_names_without_a_rule_are_refused(case, several, judge):
    """A logical axis that no rule names MUST be refused with an error that names it. (As a misspelt one is. Where it is
    meant to be whole, a rule says so.)"""
    path, one, other, names = several
    rules = [rule for rule in table(names, (one, next(iter(case.mesh)))) if rule[0] != other]
    try:
        seen = told(entries(case, path, rules))
    except Exception as error:
        judge.clear(
            [] if other in str(error) else [f"{path}: expected an error that names {other}, saw {str(error)[:200]!r}"]
        )
    else:
        judge.fail([f"{path}: expected an error that names {other}, which has no rule, saw none: {seen}"])


@pytest.mark.clause("SHD-10", applies=splits("parameters"))
def test_tables_resolve_everywhere_alike(case, several, judge):
    """A table of rules MUST resolve to the same layout inside ``jit`` and outside, and with and without a mesh in the
    context. (Of every leaf.)"""
    _, one, _, names = several
    rules = table(names, (one, next(iter(case.mesh))))
    resolve = lambda: {path: tuple(spec) for path, spec in leaves(case.strategy.resolve(rules))}  # noqa: E731
    mesh = AbstractMesh(tuple(case.mesh.values()), tuple(case.mesh), axis_types=(AxisType.Auto,) * len(case.mesh))
    inside = []
    with jax.sharding.use_abstract_mesh(mesh):
        in_context = resolve()
        jax.eval_shape(lambda: inside.append(resolve()))
    jax.eval_shape(lambda: inside.append(resolve()))
    alone = resolve()
    seen = {"with a mesh in the context": in_context, "inside jit, with one": inside[0], "inside jit": inside[1]}
    judge.clear(
        f"{path}: expected {spec} {where}, as outside without one, saw {other[path]}; pass mesh and rules explicitly"
        for where, other in seen.items()
        for path, spec in alone.items()
        if other[path] != spec
    )


def told(split):
    """What splits which logical axis."""
    return ", ".join(f"{name} → {'×'.join(axes) or 'whole'}" for name, axes in split.items())
