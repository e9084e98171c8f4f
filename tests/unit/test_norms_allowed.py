"""How many bytes of norms are metrics, and how well a change is known."""

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from meshproof.contract import Step, Trajectory
from meshproof.measures.traffic import NORMS, UNIT_NORMS, norms_allowed
from meshproof.observing.rounding import of_changes


@pytest.mark.parametrize(
    ("shape", "spec", "units"),
    [
        ((16, 32), P("data"), 32),
        ((16, 32), P(None, "data"), 16),
        ((16, 32), P(("model", "data")), 32),
        ((16, 32), P("model"), 0),
        ((16, 32), P(), 0),
        ((32,), P("data"), 1),
        ((), P(), 0),
    ],
)
def test_units_have_norms_where_the_rest_of_them_is_split(shape, spec, units):
    """By the axes of the line; beside what each parameter has."""
    assert norms_allowed([(shape, spec)], ("data",)) == NORMS + UNIT_NORMS * units


def test_a_change_is_known_as_well_as_the_parameter_is_kept():
    """That is, by the unit of its largest element after the step, and by no less than was measured."""
    name = "w, the largest change,"

    def run(change):
        return Trajectory({}, (Step(1.0, {name: np.array(change)}, {}, {}, {}),))

    before = {"w": np.array([0.1, -0.9], np.float32)}
    [step] = of_changes(run(0.0), run(1e-3), before, roundings=12, width=2.0).steps
    assert step.parameters[name] == 2.0 * 2.0**-24
    [step] = of_changes(run(0.0), run(0.2), before, roundings=12, width=2.0).steps
    assert step.parameters[name] == 2.0 * 2.0**-23
    [step] = of_changes(run(1.0), run(1e-3), before, roundings=12, width=2.0).steps
    assert step.parameters[name] == pytest.approx(1.0)
