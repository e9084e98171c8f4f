"""Tables of rules: what the book makes of one, and what each framework does by itself."""

import jax
import pytest
from flax import linen, nnx
from jax.sharding import PartitionSpec

from meshproof.contract import spec_axes
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.linen_form import LinenForm
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.lifecycle.rule_tables import settle
from reference_impl.mapping import Mapping
from reference_impl.strategies import fsdp_tensor_parallel
from reference_impl.truth import Momentum

AXES = {"kernel": ("embed", "mlp"), "bias": ("mlp",)}
BOTH = {"data": 4, "model": 2}
WHOLE = (("input", None), ("classes", None))
TABLE = (("embed", "data"), ("mlp", ("model",)), ("embed", None), *WHOLE)


@pytest.mark.parametrize("form", [JaxForm, NnxForm, LinenForm])
def test_each_framework_resolves_a_table_alike(form):
    """By its own rules, once the table is settled."""
    layer = form(fsdp_tensor_parallel.PAGE, BOTH, Momentum()).resolve(TABLE)["dense_1"]
    assert list(spec_axes(layer["kernel"])) == ["data", "model"]
    assert list(spec_axes(layer["bias"])) == ["model"]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (
            (("embed", "data"), ("mpl", "model")),
            r"logical axis 'mlp' of kernel .* has no rule: expected one of embed, m",
        ),
        ((("embed", "data"), ("mlp", "data")), "logical axes embed and mlp of kernel .* both land on mesh axis 'data'"),
        ((), r"logical axis 'embed' of kernel .* or a rule \('embed', None\), which leaves it whole"),
    ],
)
def test_a_table_that_does_not_say_it_is_refused(table, complaint):
    """With the axis and the array."""
    with pytest.raises(ValueError, match=complaint):
        settle(table, AXES)


def test_the_first_rule_of_a_name_counts():
    """And ``None`` is a rule."""
    assert settle((("embed", None), ("embed", "data"), ("mlp", "model")), AXES) == Mapping(embed=(), mlp="model")


def test_linen_leaves_whole_what_has_no_rule_or_no_free_axis():
    """By itself, in silence; where it begins to refuse it, the table in rule_tables.py is wrong."""
    assert linen.logical_to_mesh_axes(("embed", "mlp"), (("embed", "data"),)) == PartitionSpec("data", None)
    both = (("embed", "data"), ("mlp", "data"))
    assert linen.logical_to_mesh_axes(("embed", "mlp"), both) == PartitionSpec("data", None)


def test_nnx_takes_the_last_rule_and_a_name_without_one_for_a_mesh_axis():
    """By itself; where it begins to take the first, the table in rule_tables.py is wrong."""
    form = NnxForm(fsdp_tensor_parallel.PAGE, BOTH, Momentum())
    names = Mapping(**{name: name for name in ("input", "embed", "mlp", "classes")})
    rules = (*WHOLE, ("embed", "data"), ("mlp", None), ("embed", None))
    assert form.by_rules(names, rules)["dense_1"]["kernel"] == PartitionSpec(None, None)
    in_context = jax.sharding.use_abstract_mesh(form.mesh.abstract_mesh), nnx.logical_axis_rules((("embed", "data"),))
    with (
        in_context[0],
        in_context[1],
        pytest.raises(ValueError, match=r"axis: \w+ of .* is not found in mesh"),
    ):
        nnx.eval_shape(lambda key: form.module(names, key), jax.random.key(0))
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((8,), ("mlp",))), nnx.logical_axis_rules(()):
        kernel = nnx.eval_shape(lambda: nnx.Param(jax.numpy.zeros((8, 8)), out_sharding=("mlp", None)))
        assert nnx.get_partition_spec(kernel).get_value() == PartitionSpec("mlp", None)


def test_nnx_metadata_annotate_as_a_partitioning_does():
    """By the name ``out_sharding``; ``sharding`` and ``sharding_names`` warn."""

    def specs(annotate):
        initializer = annotate(nnx.initializers.lecun_uniform())
        layer = nnx.eval_shape(lambda: nnx.Linear(16, 8, kernel_init=initializer, rngs=nnx.Rngs(0)))
        return nnx.to_pure_dict(nnx.get_partition_spec(nnx.state(layer, nnx.Param)))

    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((8,), ("data",))):
        expected = specs(lambda initializer: nnx.with_partitioning(initializer, (None, "data")))
        annotated = specs(lambda initializer: nnx.with_metadata(initializer, out_sharding=(None, "data")))
        assert annotated == expected == {"kernel": PartitionSpec(None, "data"), "bias": PartitionSpec()}
