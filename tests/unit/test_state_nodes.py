"""What is a variable of NNX in a state, and what only answers to its name."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from meshproof.observing.state import annotated, is_scalar, is_variable
from reference_impl.mapping import make_mesh


class Dotted(dict):
    """A dict by attributes, as training scripts write it: it raises ``KeyError`` for what it has not."""

    __getattr__ = dict.__getitem__


def test_a_variable_is_known_by_its_type():
    """A node of a trainer's own is asked nothing."""
    assert is_variable(nnx.Param(jnp.zeros(3)))
    assert not is_variable(Dotted(w=jnp.zeros(3)))
    assert not is_variable(jnp.zeros(3))


@pytest.mark.parametrize(("shape", "single"), [((), True), ((1,), True), ((1, 1, 1), True), ((2,), False)])
def test_a_scalar_has_one_element_in_any_shape(shape, single):
    """As the bias of a convolution with one channel has."""
    assert is_scalar(jax.device_put(jnp.zeros(shape))) is single


@pytest.mark.parametrize(
    ("axes", "rules", "expected"),
    [
        (("data", None), (), [P("data", None)]),
        (("rows", "columns"), (("rows", "data"), ("columns", None)), [P("data", None)]),
        (("rows", "columns"), (("columns", ("data",)),), []),
        (("columns",), (("data", "data"), ("model", "model"), ("columns", None)), []),
        (("rows",), (), []),
    ],
)
def test_annotations_are_read_by_their_rules(axes, rules, expected):
    """Logical names by the variable's own rules, which are no layout themselves; what is left of a name is none."""
    mesh = make_mesh(jax.devices(), {"data": 2, "model": 4})
    parameter = nnx.Param(jnp.ones((8, 8)))
    parameter.set_metadata(out_sharding=axes, **({"sharding_rules": rules} if rules else {}))
    assert [P(*leaf.declared) for leaf in annotated({"w": parameter}, mesh)] == expected
