"""The measured truth of a model that is known: it is NumPy's, and its bound is no wider than the derived one."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshproof.cases import Case
from meshproof.contract import Contract, leaves
from meshproof.measures.numerics import MULTIPLE, norm
from meshproof.observing.alike import Alike
from meshproof.observing.float64_trainers import Widened
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


def both(optimizer, draws, made=False):
    """The measured truth and the derived one, leaf by leaf: their numbers, and their deviations. The measured one is
    by the trainer's own program, or by the trainer that it has ``made`` for float64."""
    strategy = Measured(single_device.PAGE, {"data": 1}, optimizer)
    start, batches = strategy.truth.initial_parameters(), list(strategy.batches(3))
    case = Case("own", strategy, {"data": 1}, "cpu")
    one = OneDevice(case, strategy.single_device("float32"), True, dict(leaves(start)), batches)
    if made:
        with jax.enable_x64(True):
            one.in_double = one.of_float64()
    assert isinstance(one.in_double, Alike if made else Widened)
    measured, derived = one.reference(one.training, draws), strategy.truth.train(start, batches)
    return [tuple(flat(getattr(each, what)) for each in (measured, derived)) for what in ("value", "rounding")]


EXACT = [Momentum(2**-6, 7 / 8), Adam(2**-12, 7 / 8, 1 - 2**-10, 2**-27)]
"""Numbers that are the same in float32."""


@pytest.mark.parametrize("optimizer", EXACT, ids=["momentum", "adam"])
def test_measured_truth_is_the_derived_one(optimizer):
    """To float64 rounding."""
    [(values, true), _] = both(optimizer, draws=1)
    assert values.keys() == true.keys()
    assert all(norm(np.subtract(values[path], true[path])) <= 1e-13 * norm(np.asarray(true[path])) for path in true)


@pytest.mark.parametrize("optimizer", [Momentum(), Adam()], ids=["momentum", "adam"])
def test_measured_deviations_are_near_the_derived_ones(optimizer):
    """Between a half and two and a half times. By its own program less where constants are rounded, as Adam's are: in
    float64 that has those of float32, which no rounding of its steps explains then."""
    for made in (True, False):
        [_, (deviations, bounds)] = both(optimizer, DRAWS, made)
        judged = [path for path in bounds if not path.endswith("count")]
        shares = [norm(np.asarray(deviations[path])) / norm(np.asarray(bounds[path])) for path in judged]
        assert max(shares) < 2.5
        assert min(shares) > (0.5 if made or isinstance(optimizer, Momentum) else 0.1)


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


def one_device(**members):
    """The minimal trainer, which is its own truth."""
    trainer = odd(**PLAIN | members)
    strategy = odd(**members | {"single_device": lambda dtype: trainer})
    return OneDevice(Case("line", strategy, {"data": 8}, "cpu"), trainer, False, WEIGHT, trainer.batches(3))


def single(state, batch):
    """A step in float32, whatever it is handed."""
    return odd().train_step({"w": state["w"].astype("float32")}, batch)


def on_the_host(state, batch):
    """A step that looks at a number that no trace has."""
    return odd().train_step(state, batch) if float(batch["x"][0]) >= 0 else None


def draws(state, batch):
    """A step with noise."""
    return odd().train_step(state, batch | {"x": batch["x"] + jax.random.normal(jax.random.key(0), (8,))})


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"draws": True},
        {"train_step": jax.jit(draws)},
        {"train_step": single},
        {"train_step": jax.jit(single)},
    ],
    ids=["as it is", "says that it draws", "draws", "float32 whatever it is handed", "float32, jitted"],
)
def test_truth_is_its_own_program_in_float64(members):
    """With the same draws: float32 is as near as it can be."""
    one = one_device(**members)
    assert isinstance(one.in_double, Widened)
    true, near = one.reference(one.training, DRAWS).value.steps[0], one.train(one.trainer, one.training).steps[0]
    assert true.parameters["w"].dtype == np.float64
    assert true.loss == pytest.approx(near.loss, rel=1e-6) and true.loss != near.loss


def test_a_step_that_cannot_be_traced_is_asked_for_float64():
    """What it makes of itself."""
    assert isinstance(one_device(train_step=HostStep(jax.jit(odd().train_step))).in_double, Alike)


class HostStep:
    """A step that waits for its loss, with the program that it runs."""

    def __init__(self, step):
        self.step, self.lower = step, step.lower

    def __call__(self, state, batch):
        """The next state, if the loss is a number."""
        state, metrics = self.step(state, batch)
        return (state, metrics) if np.isfinite(float(metrics["loss"])) else None


OTHERWISE = r"; single_device\('float64'\) "


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"contract": Contract(compute_dtype="bfloat16")}, "it computes in bfloat16"),
        (
            {"train_step": on_the_host},
            f"its own program raises ConcretizationTypeError: .*{OTHERWISE}raises AttributeError: .*",
        ),
        ({"train_step": HostStep(jax.jit(single))}, f".*{OTHERWISE}returns narrower numbers"),
        (
            {"train_step": HostStep(jax.jit(draws))},
            f".*{OTHERWISE}raises NotTheSameError: in float64 JAX draws other numbers",
        ),
        (
            {"train_step": HostStep(jax.jit(odd().train_step)), "draws": True},
            f".*{OTHERWISE}raises NotTheSameError: in float64 JAX draws other numbers",
        ),
    ],
    ids=["bfloat16", "without lower", "float32 whatever it is handed", "draws", "says that it draws"],
)
def test_where_float64_cannot_be_had_its_own_run_is_the_truth(members, why):
    """The bound is no less than the rounding of both runs, and it is said why."""
    one = one_device(**members)
    reference = one.reference(one.training, DRAWS)
    assert isinstance(one.in_double, NotSupported)
    assert re.fullmatch(why, one.in_double.reason)
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
