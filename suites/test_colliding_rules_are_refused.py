"""Two logical axes of an array on one mesh axis: no such sharding exists, and dropping one of them replicates."""

import pytest

from meshproof.contract import leaves

from .applicability import splits


@pytest.mark.clause("SHD-8", applies=splits("parameters"))
def test_colliding_rules_are_refused(case, judge):
    """Rules that put two logical axes of one array on one mesh axis MUST be refused with an error that names both
    logical axes, the mesh axis and the array."""
    judge.needs(case, "logical_axes", "lay_out")
    several = ((path, axes) for path, axes in leaves(case.strategy.logical_axes) if len(set(axes)) > 1)
    path, (one, other, *_) = next(several)
    mesh_axis = next(iter(case.mesh))
    case.strategy.lay_out({one: mesh_axis})
    message = refusal(case.strategy, {one: mesh_axis, other: mesh_axis})
    named = (one, other, mesh_axis, path)
    expected = f"{path}: expected an error that names {', '.join(named)}"
    judge.clear([] if message else [f"{expected}, saw none: {one} and {other} are both put on {mesh_axis}"])
    judge.clear(f"{expected}, saw one without {name}: {message!r}" for name in named if name not in message)


def refusal(strategy, rules):
    """The text of the error that these rules raise; empty if they raise none."""
    try:
        strategy.lay_out(rules)
    except Exception as error:
        return str(error)
    return ""
