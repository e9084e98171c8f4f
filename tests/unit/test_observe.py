"""What an observation looks at."""

from dataclasses import replace
from operator import attrgetter

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.cases import Case
from meshproof.contract import Contract
from meshproof.observing.members import told
from meshproof.observing.seen import Failed, NotExercised, NotSupported
from meshproof.observing.session import observe
from meshproof.observing.state import layout_of, moved
from meshproof.observing.subject import STEPS
from tests.healthy.idioms import Trainer as Plain
from tests.implementations.minimal import Trainer
from tests.implementations.odd import odd


class Canonical(Trainer):
    """Says how an array lies that is none of its canonical tree."""

    contract = Contract(parameters={"weights/*": PartitionSpec()})

    def parameters(self, state):
        """One leaf."""
        return state


class AtRest(Canonical):
    """Says where that array is."""

    def at_rest(self, state):
        """The same weight, as it is kept."""
        return {"parameters": {"weights": {"all": state["w"]}}, "optimizer_state": {}}


def case(strategy):
    """The case of a strategy on one device."""
    return Case("line", strategy, {"data": 1}, "cpu")


def test_layout_is_that_of_the_arrays_at_rest():
    """Where a strategy shows its arrays at rest their layout is judged, and numbers are those of the canonical tree."""
    seen = observe(case(AtRest()))
    [leaf] = seen.start.layouts.parameters
    assert (leaf.path, leaf.declared, leaf.as_declared) == ("weights/all", (), True)
    assert list(seen.start.parameters) == ["w"] and np.isfinite(seen.start.parameters["w"])


def test_layout_is_else_that_of_the_canonical_tree():
    """Without them a declaration of what is not in the canonical tree is a fault that names both."""
    seen = observe(case(Canonical()))
    assert isinstance(seen.start.layouts.parameters, Failed)
    assert "['weights/*']" in seen.start.layouts.parameters.reason and "['w']" in seen.start.layouts.parameters.reason


def test_layout_in_use_is_of_parameters_too():
    """A pattern of ``computed`` that matches no parameter is the same fault, by its name."""
    strategy = AtRest()
    strategy.contract = replace(AtRest.contract, computed={"weights/*": PartitionSpec(), "w": PartitionSpec()})
    seen = observe(case(strategy)).start.layouts.parameters
    assert isinstance(seen, Failed) and "expected leaves of computed that match ['w']" in seen.reason


@pytest.mark.parametrize("member", ["loss", "gradients"])
def test_what_changes_the_state_in_place_is_told(member):
    """As a model in training mode that updates its statistics: not as a nondeterminism three steps later."""

    def count(state, batch):
        state["w"] = state["w"] + 1
        return {"loss": jnp.zeros(()), "gradients": {"w": jnp.zeros(())}}[member]

    seen = observe(case(odd(**{member: count})))
    told = {"loss": seen.start.loss, "gradients": seen.gradients.values}[member]
    assert f"{member} changed the state that it was given, in place: 1 of its arrays, first ['w']" in told.reason


def test_what_donates_the_state_is_told():
    """By the member that did; what comes after starts from another state, and is judged."""
    donates = jax.jit(lambda state, batch: {"w": state["w"] + 1}, donate_argnums=0)
    seen = observe(case(odd(gradients=donates)))
    words = "gradients donated the state that it was given: 1 of its arrays, first ['w']"
    assert words in seen.gradients.values.reason
    assert len(seen.training.steps) == STEPS


def test_an_array_that_is_gone_is_told_with_its_causes():
    """JAX says that it was deleted; whoever wrote `load` must know why."""
    held = {"w": jnp.ones(())}
    seen = observe(case(odd(init=lambda key: held, train_step=jax.jit(odd().train_step, donate_argnums=0))))
    assert "let init, load and single_device make new arrays in every call" in seen.training.rerun.reason


def test_float64_that_several_processes_hand_over_is_told():
    """JAX says that it differs, and shows digits that do not."""
    error = AssertionError("<class 'numpy.ndarray'> passed to device_put is not the same on each process.")
    assert told(error).endswith("hand over float32.") and told(error).startswith("AssertionError: <class")
    assert told(ValueError("w")) == "ValueError: w"


def test_what_load_is_handed_is_told():
    """A trainer that keeps its layers in a list gets a dict of them."""

    def load(parameters):
        return {"w": parameters[0]}

    with pytest.raises(KeyError) as raised:
        load({"0": 1.0})
    assert told(raised.value).endswith("of a list of layers {'0': …, '1': …}, which it makes a list again.")


def test_batches_that_are_no_function_are_refused():
    """By the member's name, and with what it should be."""
    with pytest.raises(TypeError, match=r"batches is a list of 1 \(dict\), expected a function: batches\(count\)"):
        observe(case(odd(batches=[{}])))


def test_a_single_device_of_several_is_refused():
    """Whether it shows gradients or not: nobody is told that a run on eight devices is one device's."""
    trainer = Plain(8)
    trainer.single_device, trainer.gradients = lambda dtype: Plain(8), None
    told = observe(Case("several", trainer, {"data": 8}, "cpu")).single_device.truth.reason
    assert "single_device() trains on 8 devices, expected one" in told


def test_arrays_of_another_type_are_named():
    """With both: they are why a second step compiles again."""
    step = jax.jit(lambda state, batch: ({"w": state["w"].astype(jnp.float16)}, {"loss": jnp.zeros(())}))
    assert observe(case(odd(train_step=step))).training.retyped == ("['w']: expected float32[], is float16[]",)


def test_host_arrays_lie_nowhere():
    """A layout is that of arrays on devices: where a strategy shows others, no pass and no fault, and what to do."""
    contract = Contract(parameters={"*": PartitionSpec()}, gradients={"*": PartitionSpec()})
    shown = odd(
        contract=contract,
        parameters=lambda state: {"w": np.asarray(state["w"])},
        gradients=lambda *_: {"w": np.zeros(())},
    )
    seen = observe(case(shown))
    lies = "has a ndarray of shape () at 'w', which is on no device: return the jax.Arrays"
    assert seen.start.layouts.parameters == NotSupported(f"parameters {lies}, or show those at rest in `at_rest`")
    assert seen.gradients.layout == NotSupported(f"gradients {lies}")
    assert seen.training.replicas.passed and [leaf.path for leaf in seen.training.replicas.records] == ["['w']"]


@pytest.mark.parametrize(
    ("member", "returned", "words"),
    [
        ("init", {"w": 0.5}, "init returned a dict, {'w': 0.5}, expected a pytree of jax.Array"),
        ("batches", None, "batches(3) returned a NoneType, None, expected 3 dicts of arrays"),
        ("batches", [{"x": np.zeros(8)}], "batches(3) returned 1, expected 3 dicts"),
        ("batches", [np.zeros(8)] * 3, "a ndarray of shape (8,) as one of them, expected 3 dicts"),
        ("batches", [{"x": np.zeros(8), "y": np.zeros(4)}] * 3, "leading dimensions {'x': (8,), 'y': (4,)}"),
    ],
)
def test_what_no_run_can_start_from_is_named(member, returned, words):
    """A state or batches of the wrong kind end the case, with what came, what was expected and what to do."""
    with pytest.raises((TypeError, ValueError)) as raised:
        observe(case(odd(**{member: lambda _: returned})))
    assert words in str(raised.value)


def test_a_mask_that_no_batch_has_is_named():
    """With the fields that there are."""
    with pytest.raises(ValueError, match=r"Contract\.mask is 'padding', expected a field of the batches, .* x, y"):
        observe(case(odd(contract=Contract(mask="padding"))))


def test_batches_that_are_drawn_anew_are_named():
    """Another process would see others, and what is recorded of them is of this run alone."""
    drawn = np.random.default_rng()
    unseeded = odd(batches=lambda count: [{"x": drawn.normal(size=8), "y": np.zeros(8)} for _ in range(count)])
    with pytest.raises(ValueError, match=r"another x in batch 1 when it was called again, .* seed what draws them"):
        observe(case(unseeded))


@pytest.mark.parametrize(
    ("member", "returned", "part", "words"),
    [
        ("train_step", {"w": jnp.zeros(())}, "training.steps", "train_step returned a dict"),
        (
            "train_step",
            ({}, {"cost": 0.0}),
            "training.steps",
            "expected the next state and a dict of metrics that has a loss",
        ),
        (
            "train_step",
            ({}, {"loss": np.zeros(8)}),
            "training.steps",
            "metrics['loss'] is a ndarray of shape (8,), expected a sca",
        ),
        ("loss", np.zeros(8), "start.loss", "loss is a ndarray of shape (8,), expected a scalar"),
        (
            "parameters",
            [jnp.zeros(())],
            "start.parameters",
            "parameters returned a list of 1 (ArrayImpl), expected nested dicts",
        ),
        (
            "optimizer_state",
            (jnp.zeros(()), ()),
            "training.layouts.optimizer_state",
            "at every leaf; of an optax state name the fields, as in {'mu': state[0].mu",
        ),
        ("parameters", {"w": 0.5}, "start.parameters", "parameters has a float, 0.5 at 'w'"),
        (
            "parameters",
            {"net/~": {"w": jnp.zeros(())}},
            "start.parameters",
            "parameters has the key 'net/~', expected one without",
        ),
        (
            "parameters",
            {"layers": [{"w": jnp.zeros(())}]},
            "start.parameters",
            "every leaf; name what it holds, as in {str(i): each for i, each in enumerate(layers)}",
        ),
        (
            "parameters",
            {"w": jnp.zeros(2, jnp.complex64)},
            "start.parameters",
            "parameters has complex64 at 'w', expected real numbers; keep its real and its imaginary part as two",
        ),
        (
            "parameters",
            {"w": nn.Partitioned(jnp.zeros(()), ())},
            "start.parameters",
            "every leaf; take it out of its box, as flax.linen.meta.unbox(tree) does",
        ),
        ("gradients", None, "gradients.values", "gradients returned a NoneType, None, expected nested dicts"),
        (
            "shard_batch",
            (jnp.zeros(8),),
            "start.batch.fields",
            "shard_batch returned a tuple of 1 (ArrayImpl), expected nested di",
        ),
    ],
)
def test_what_cannot_be_read_is_named(member, returned, part, words):
    """What a member must not return fails the clauses that look at it, with what came and what was expected."""
    seen = attrgetter(part)(observe(case(odd(**{member: lambda *_: returned}))))
    assert isinstance(seen, Failed) and words in seen.reason


def test_a_step_that_cannot_be_lowered_is_not_supported():
    """A plain function trains, but no program can be looked at: never a pass, nor a fault."""
    seen = observe(case(Trainer()))
    step = seen.programs.step
    assert isinstance(step.collectives, NotSupported) and "train_step has no lower()" in step.collectives.reason
    assert set(vars(step).values()) == {step.collectives}


def test_a_state_that_is_not_finite_is_named():
    """NaN in the state is seen also where the strategy shows no part of it."""
    seen = observe(case(odd(train_step=lambda state, batch: ({"w": jnp.float32(np.nan)}, {"loss": 0.0}))))
    [leaf] = seen.training.finite.failures
    assert leaf.path == "['w']" and leaf.failure == "non-finite"


def test_what_moved_says_from_where_to_where():
    """A state that starts on one device and comes back on all of them; and a leaf that is gone."""
    mesh = jax.make_mesh((8,), ("data",))
    array = jnp.ones(8)
    before, after = {"gone": array, "w": array}, {"w": jax.device_put(array, NamedSharding(mesh, PartitionSpec()))}
    assert moved(layout_of(before), layout_of(after)) == (
        "['gone']: expected SingleDeviceSharding on devices [0], is absent among the arrays on devices",
        f"['w']: expected SingleDeviceSharding on devices [0], is {PartitionSpec()} on devices [0, 1, 2, 3, 4, 5, ...]",
    )
    assert moved(layout_of(before), layout_of(before)) == ()


def test_the_bits_of_a_random_key_are_observed():
    """A state may hold a random key: it lies somewhere, is the same on all devices, and is the same in every run."""
    seen = observe(
        case(odd(init=lambda key: {"w": jnp.zeros(()), "key": key}, train_step=lambda state, _: (state, {"loss": 0.0})))
    )
    assert seen.training.rerun.passed and seen.training.replicas.passed and seen.training.moved == ()
    assert [leaf.path for leaf in seen.training.layouts.arrays] == ["['key']", "['w']"]


def test_what_no_clause_asks_for_is_not_saved():
    """Checkpoints take a third of the time: a run of other clauses does without."""

    def save(state, folder):
        raise AssertionError("nobody asked for it")

    trainer = odd(save=save, restore=save)
    assert isinstance(observe(case(trainer), checkpoints=False).training.checkpoints.restored, NotExercised)
    assert "nobody asked" in observe(case(trainer)).training.checkpoints.restored.reason
