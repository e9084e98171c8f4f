"""What is told of a checkpoint of another model: the first leaves that do not fit, how many more, and what to do."""

import re

import jax
import pytest
from jax.sharding import SingleDeviceSharding
from orbax.checkpoint import v1 as ocp

from reference_impl.lifecycle.checkpointing import CheckpointError, by_path, restore, save
from reference_impl.lifecycle.choosing import choose

pytestmark = pytest.mark.any_stack

LONGEST = 1200
"""Characters: some lines of a terminal."""


@pytest.fixture(scope="module")
def perceptron(tmp_path_factory):
    """A checkpoint of FSDP (8) of the perceptron."""
    form, folder = choose("fsdp", "jax", "mlp", {"data": 8}, 64), tmp_path_factory.mktemp("saved") / "mlp"
    save(form.init(jax.random.key(0)), folder)
    return folder


def test_another_model_is_told_by_a_few_of_its_leaves(perceptron):
    """GPT has none of the perceptron's: the first two of each, the others counted; not 40 in one line."""
    form = choose("fsdp", "jax", "gpt", {"data": 8}, 16)
    state = by_path(form.init(jax.random.key(0)))
    with pytest.raises(CheckpointError) as raised:
        form.restore(perceptron)
    said = str(raised.value)
    lacking = re.findall(r"(\S+): expected \S+\[[\d, ]*], the checkpoint has no such leaf", said)
    extra = re.findall(r"(\S+): expected no such leaf, the checkpoint has float32\[[\d, ]+]", said)
    assert len(lacking) == len(extra) == 2 and lacking[0] in state
    assert f"; {len(state) - 2} more are missing; " in said and "; 14 more are unknown. " in said
    assert said.endswith("restore it as the model, sizes and optimizer of which it was saved")
    assert f"The state has {len(state)} leaves, the checkpoint 16" in said
    assert len(said) < LONGEST


def test_another_size_is_told_by_the_first_leaf_and_both_shapes(tmp_path):
    """And the second; those after them are counted."""
    device = SingleDeviceSharding(jax.devices()[0])
    save({name: jax.numpy.zeros((4, 8)) for name in "abcdef"}, tmp_path / "it")
    shapes = {name: (4, 8) if name == "a" else (4, 9) for name in "abcdef"}
    wider = {name: jax.ShapeDtypeStruct(shape, "float32", sharding=device) for name, shape in shapes.items()}
    with pytest.raises(CheckpointError) as raised:
        restore(wider, tmp_path / "it")
    assert str(raised.value).partition("state: ")[2].partition(". ")[0] == (
        "b: expected float32[4, 9], the checkpoint has float32[4, 8]; "
        "c: expected float32[4, 9], the checkpoint has float32[4, 8]; 3 more differ"
    )


def test_a_tree_that_orbax_was_given_is_no_checkpoint_of_the_book(tmp_path):
    """It is refused by the same type, and not by an error of Python."""
    state = {"layer": {"kernel": jax.numpy.ones((4, 4))}}
    ocp.save(tmp_path / "it", state)
    expected = {
        "layer": {"kernel": jax.ShapeDtypeStruct((4, 4), "float32", sharding=state["layer"]["kernel"].sharding)}
    }
    with pytest.raises(
        CheckpointError, match="layer: expected no such leaf, the checkpoint has dict, which is no array"
    ):
        restore(expected, tmp_path / "it")
