"""Two logical names on one mesh axis: no device could hold such a shard, and a spec that drops one is a silent copy."""

import pytest

from meshproof.contract import leaves

from .applicability import splits


@pytest.mark.clause("SHD-8", applies=splits("parameters"))
def test_colliding_rules_are_refused(case, judge):
    """Rules that put two logical axes of one array on one mesh axis MUST be refused with an error that names both, the
    mesh axis and the array."""
    judge.needs(case, "logical_axes", "lay_out")
    several = ((path, axes) for path, axes in leaves(case.strategy.logical_axes) if len(set(axes)) > 1)
    path, (one, other, *_) = next(several)
    mesh_axis = next(iter(case.mesh))
    case.strategy.lay_out({one: mesh_axis})
    message = refusal(case.strategy, {one: mesh_axis, other: mesh_axis})
    named = (one, other, mesh_axis, path)
    accepted = f"{path}: {one} and {other} were both put on {mesh_axis}"
    judge.clear([] if message else [f"{accepted}; expected an error that names {', '.join(named)}"])
    judge.clear(f"{path}: the error does not name {name}: {message!r}" for name in named if name not in message)


def refusal(strategy, rules):
    """What rules are refused with; empty where they are not."""
    try:
        strategy.lay_out(rules)
    except Exception as error:
        return str(error)
    return ""
