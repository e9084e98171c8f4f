"""Each judge of a timed step's numbers sees the fault that is planted for it."""

from dataclasses import dataclass
from functools import cached_property

import jax
import optax
import pytest

from benchmarks.fit import compile_abstract
from benchmarks.judges import BySingleDevice, JudgeError, Judges
from benchmarks.window import ForwardWindow, Window, WindowError
from meshproof.cases import Case, case_id
from meshproof.observing.compilations import compilations_of
from reference_impl.forms.annotated import JaxForm
from reference_impl.models.mlp import MLP
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.sizes.scaled import Scaled
from reference_impl.strategies import data_parallel, fsdp
from reference_impl.truth import Momentum

pytestmark = pytest.mark.any_stack

DATA = {"data": 8}
NETWORK = MLP(widths=(16, 8, 16, 8, 4))


@dataclass(frozen=True)
class Detuned(Scaled):
    """Trains otherwise on a mesh than on one device."""

    factor: float = 3.0

    @cached_property
    def transform(self):
        """SGD, on a mesh with another learning rate."""
        rate = self.optimizer.learning_rate * (self.factor if self.mesh_axes == DATA else 1)
        return optax.sgd(rate, momentum=self.optimizer.decay)


@dataclass(frozen=True)
class Shifted(Scaled):
    """Its forward pass alone is wrong."""

    @property
    def loss(self):
        """A loss that is 5 % too high."""
        right = super().loss
        return lambda state, batch: right(state, batch) * (1.05 if self.mesh_axes == DATA else 1)


def case_of(form, **more):
    """A small perceptron, fully sharded, in this form."""
    strategy = form(fsdp.PAGE, DATA, more.pop("optimizer", Momentum()), more.pop("network", NETWORK), **more)
    return Case(case_id(strategy), strategy, DATA, "cpu")


@pytest.mark.parametrize("network", [NETWORK, MixedPrecision(NETWORK)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", [Window, ForwardWindow])
def test_single_device_passes_what_trains_like_it(kind, network):
    """A step without a truth is judged by its single device in float32, also where it computes in bfloat16."""
    window = kind(case_of(Scaled, network=network))
    window.warm_up()
    assert window.judge.name == "the single device in float32"


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_single_device_sees_another_learning_rate(factor):
    """A step that trains otherwise on a mesh than on one device is refused."""
    with pytest.raises(WindowError, match=r"of the single device in float32, saw .*; allowed difference "):
        Window(case_of(Detuned, factor=factor)).warm_up()


def test_single_device_sees_a_wrong_forward_pass():
    """A forward pass that gives another loss on a mesh than on one device is refused."""
    with pytest.raises(WindowError, match="of the single device in float32"):
        ForwardWindow(case_of(Shifted)).warm_up()


def test_single_device_trains_once_for_a_case(monkeypatch):
    """For all windows of a case, at float32 precision whatever theirs is; other cases and windows have their own."""
    trained = []

    def train(case, batches, train):
        trained.append((case, train, jax.config.jax_default_matmul_precision))
        return BySingleDevice([], 0.0)

    monkeypatch.setattr("benchmarks.judges.single_device", train)
    together, case, other = Judges(), case_of(Scaled), case_of(Scaled)
    for kind, given in ((Window, case), (Window, case), (ForwardWindow, case), (Window, other)):
        assert kind(given, together).judge.allowed == 0
    assert trained == [(case, True, "float32"), (case, False, "float32"), (other, True, "float32")]


def test_single_device_must_learn():
    """Where the single device learns nothing in a window, nothing can be told by it: an error, not a pass."""
    with pytest.raises(JudgeError, match=r"it must fall by 1% or more"):
        Window(case_of(Scaled, optimizer=Momentum(learning_rate=1e-9))).warm_up()


@pytest.mark.parametrize("kind", [Window, ForwardWindow])
def test_truth_judges_every_loss(kind):
    """With a truth each loss of a window is judged, so that a fault of one step alone is seen."""
    window = kind(case_of(JaxForm))
    window.warm_up()
    assert window.judge.name == "truth"
    losses = list(window.losses)
    assert window.judge.problem(losses) is None
    for number in range(len(losses)):
        wrong = [*losses[:number], losses[number] * 1.001, *losses[number + 1 :]]
        assert f"loss {number + 1}" in window.judge.problem(wrong)


@pytest.mark.parametrize("page", [data_parallel.PAGE, fsdp.PAGE])
def test_facts_are_of_the_timed_program(page):
    """What is compiled for shapes alone is what the timed calls run: they compile nothing."""
    strategy = JaxForm(page, DATA, Momentum(), NETWORK)
    window = Window(Case(case_id(strategy), strategy, DATA, "cpu"))
    program = compile_abstract(window.case, window.batches[0])
    state = window.set_up()[0][0]
    with compilations_of() as events:
        jax.block_until_ready(strategy.train_step(state, window.batches[0]))
    assert "backend_compile" not in events
    moved = sum(array.size for array in jax.tree.leaves(strategy.network.init(jax.random.key(0)))) * 4
    assert program.facts["bytes_by_axis"]["data"] >= moved
