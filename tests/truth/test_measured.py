"""The measured truth of a model that is known: it is NumPy's, and its bound is no wider than the derived one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshproof.cases import Case
from meshproof.contract import Contract, leaves
from meshproof.measures.numerics import MULTIPLE, norm
from meshproof.observing.rounding import deviation, moved, ulp
from meshproof.observing.seen import NotSupported
from meshproof.observing.single_device_truth import DRAWS, OneDevice, observe_single_device
from meshproof.observing.subject import Subject
from reference_impl.forms.annotated import JaxForm
from reference_impl.strategies import single_device
from reference_impl.truth import Adam, Momentum
from tests.false_alarms import margins
from tests.healthy.kinds import KINDS
from tests.implementations.minimal import Trainer
from tests.implementations.odd import odd

pytestmark = pytest.mark.any_stack

PLAIN = {"load": lambda parameters: {"w": jnp.asarray(parameters["w"])}, "parameters": lambda state: state}
"""What the minimal trainer lacks to be its own truth."""


class Measured(JaxForm):
    """The reference on one device, which brings no truth here but itself."""

    def single_device(self, dtype):
        """The same."""
        return JaxForm(single_device.PAGE, {"data": 1}, self.optimizer)


def flat(trajectory):
    """Every leaf of a trajectory."""
    steps = {str(number): vars(step) for number, step in enumerate(trajectory.steps)}
    return dict(leaves({"gradients": trajectory.gradients} | steps))


@pytest.mark.parametrize("optimizer", [Momentum(), Adam()], ids=["momentum", "adam"])
def test_measured_truth_is_the_derived_one(optimizer):
    """Values agree to float64 rounding, and deviations are between a fifth and twice the derived ones."""
    strategy = Measured(single_device.PAGE, {"data": 1}, optimizer)
    start, batches = strategy.truth.initial_parameters(), list(strategy.batches(3))
    case = Case("own", strategy, {"data": 1}, "cpu")
    one = OneDevice(case, strategy.single_device("float32"), True, dict(leaves(start)), batches)
    reference = one.reference(one.training, DRAWS)
    derived = strategy.truth.train(start, batches)
    values, true = flat(reference.value), flat(derived.value)
    assert values.keys() == true.keys()
    assert all(norm(np.subtract(values[path], true[path])) <= 1e-13 * norm(np.asarray(true[path])) for path in true)
    deviations, bounds = flat(reference.rounding), flat(derived.rounding)
    judged = [path for path in bounds if not path.endswith("count")]
    shares = [norm(np.asarray(deviations[path])) / norm(np.asarray(bounds[path])) for path in judged]
    assert min(shares) > 0.2 and max(shares) < 2


def test_inputs_move_as_by_one_rounding():
    """The error has the variance ulp²/12 and no mean; whole numbers, integers and truth values stay."""
    values = np.full(120_000, 1.5, np.float32)
    still = {"mask": np.array([0.0, 1.0, 3.0], np.float32), "tokens": np.arange(5), "flags": np.array([True, False])}
    [seen] = moved([{"x": values} | still], draw=0)
    ulps = (seen["x"].astype(np.float64) - 1.5) / 2.0**-23
    assert set(ulps) == {-1.0, 0.0, 1.0}
    assert abs(ulps.var() - 1 / 12) < 0.005 and abs(ulps.mean()) < 0.005
    assert all(seen[name] is still[name] or np.array_equal(seen[name], still[name]) for name in still)


WEIGHT = {"w": np.full((), 0.3, np.float32)}


@pytest.mark.parametrize(
    "members",
    [
        {"contract": Contract(compute_dtype="bfloat16")},
        {"draws": True},
        {},
        {"train_step": jax.jit(lambda state, batch: odd().train_step({"w": state["w"].astype("float32")}, batch))},
    ],
    ids=["bfloat16", "draws", "without lower", "float32 whatever it is handed"],
)
def test_where_float64_cannot_be_had_its_own_run_is_the_truth(members):
    """And the bound is no less than the rounding of both runs."""
    trainer = odd(**PLAIN | members)
    strategy = odd(**members | {"single_device": lambda dtype: trainer})
    one = OneDevice(Case("line", strategy, {"data": 8}, "cpu"), trainer, False, WEIGHT, trainer.batches(3))
    reference = one.reference(one.training, DRAWS)
    assert one.in_double is None
    step, rounding = reference.value.steps[2], reference.rounding.steps[2]
    assert step.parameters["w"].dtype == np.float32
    assert rounding.parameters["w"] >= np.sqrt(2 * (8 - 1 + 3) / 12) * ulp(step.parameters["w"], "float32")


def test_a_single_device_that_cannot_be_started_is_not_supported():
    """And it is said what it lacks."""
    seen = observe_single_device(
        Subject(Case("line", odd(**PLAIN | {"single_device": lambda dtype: Trainer()}), {"data": 1}, "cpu")), WEIGHT
    )
    assert seen == NotSupported("what single_device returns has no load and no parameters")


def test_the_last_rounding_is_allowed_though_no_draw_shows_it():
    """Where all draws round alike, by chance to next to nothing, a result one unit in the last place off is healthy."""
    ulp = 2.0**-23
    true, draws = np.float64(1 + 0.01 * ulp), [np.float32(1)] * DRAWS
    allowed = MULTIPLE * deviation(true, draws, roundings=1)
    assert 1.5 * ulp < allowed < 2 * ulp
    assert allowed < MULTIPLE * deviation(true, draws, roundings=10) < 1e-6, "a ten-millionth is never hidden"
    assert deviation(np.int32(7), [np.int32(7)] * DRAWS, roundings=10) == 0
    assert deviation(np.zeros(1), [np.zeros(1, np.float32)] * DRAWS, roundings=10) == 0, "a moment that is not used"


@pytest.mark.parametrize("kind", KINDS[1::3], ids=lambda kind: kind.name)
def test_a_healthy_trainer_is_far_from_its_bound(kind):
    """And two small faults far beyond it. `python -m tests.false_alarms` has more seeds."""
    found = margins(kind, seeds=2, faults=1)
    assert max(found.healthy) < 0.6 and min(found.scaled) > 20 and min(found.rounded) > 200
