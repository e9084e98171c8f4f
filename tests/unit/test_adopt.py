"""What `meshproof adopt` infers and writes, part by part: patterns, parts of a state, payloads, source."""

import ast
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from meshproof.adopting.adapter import Adapter, spelled_spec
from meshproof.adopting.batch_statistics import in_forward, in_step, running
from meshproof.adopting.contracts import Adoption
from meshproof.adopting.patterns import fewest
from meshproof.adopting.questions import Question, named
from meshproof.adopting.seeing import Leaf
from meshproof.adopting.stacks import gathered_vectors
from meshproof.adopting.theory import Theory
from meshproof.adopting.traffic import Seen, lines, payload, sorted_out, weights
from meshproof.adopting.trees import arrays, copied, loaded, subtree
from meshproof.adopting.writing import changes, render
from meshproof.contract import Communication, Contract
from meshproof.hlo import Collective

ADAPTER = Adapter(
    "my_trainer", "Trainer", "Trainer()", "fsdp", "jax", "mlp", {"data": 8}, {"init": "", "train_step": ""}
)
MESH = {"data": 4, "model": 2}


def moved(operation, axes, dimensions, phase="backward", tensors=1, realized_as=None):
    """A collective of float32 tensors of one shape."""
    size = 4 * int(np.prod(dimensions)) * tensors
    return Collective(operation, axes, tensors, tensors, size, "f32", realized_as or operation, phase), dimensions


def spec_of(path, patterns):
    """By the first pattern that matches."""
    return next(spec for pattern, spec in patterns.items() if fnmatchcase(path, pattern))


class Spelled(SimpleNamespace):
    """A pytree whose keys are plain words, which JAX takes."""


jax.tree_util.register_pytree_with_keys(
    Spelled, lambda made: ([("w", made.w)], None), lambda _, children: Spelled(w=children[0])
)


def test_keys_may_be_words():
    """JAX asks for no kind of key."""
    assert list(arrays({"a": Spelled(w=jnp.ones(3))})) == ["a/w"]


@pytest.mark.parametrize(
    ("specs", "patterns"),
    [
        ({"a": P(), "b/c": P()}, {"*": P()}),
        (
            {"h/bias": P(), "h/kernel": P("data"), "o/bias": P(), "o/kernel": P("data")},
            {"*kernel": P("data"), "*": P()},
        ),
        ({"embed/w": P("model"), "0/w": P(), "1/w": P()}, {"embed/w": P("model"), "*": P()}),
        ({"block_0/up": P("m"), "block_1/up": P("m"), "block_0/down": P(), "head": P()}, {"*up": P("m"), "*": P()}),
    ],
)
def test_patterns_are_the_fewest(specs, patterns):
    """One for each layout, where a word tells them apart."""
    assert fewest(specs) == patterns


PATHS = st.lists(
    st.sampled_from([f"{a}/{b}" for a, b in product("xyz", ("w", "bias", "w_out"))]), min_size=1, unique=True
)


@given(PATHS, st.data())
def test_patterns_say_every_layout(paths, data):
    """Each leaf gets its own layout, each pattern is the first match of a leaf, none matches what it may not."""
    specs = {path: data.draw(st.sampled_from([P(), P("data"), P(None, "data")])) for path in paths}
    avoid = frozenset(data.draw(st.sets(st.sampled_from(paths), max_size=len(paths) - 1)))
    kept = {path: spec for path, spec in specs.items() if path not in avoid}
    patterns = fewest(kept, avoid)
    assert {path: spec_of(path, patterns) for path in kept} == kept
    assert not Contract(parameters=patterns).unmatched("parameters", kept)
    assert not [path for path in avoid for pattern in patterns if fnmatchcase(path, pattern)]


def test_subtrees_are_named_by_path():
    """Of any pytree; what is not there is an error that says what is."""
    state = {"a": (jnp.ones(2), {"b": jnp.zeros(3)}), "n": 3}
    assert list(arrays(state)) == ["a/0", "a/1/b"]
    assert subtree(state, "a/0") is state["a"][0]
    assert list(subtree(state, "a", without=("0",))["1"]) == ["b"]
    with pytest.raises(LookupError, match=r"no array below 'a/0/b'; nearest of its 2: a/1/b, a/0\. If"):
        subtree(state, "a/0/b")
    abstract = jax.eval_shape(lambda: {"a": jnp.ones(2)})
    assert subtree(abstract, "a").shape == (2,), "on a target that only compiles"


def test_values_are_loaded_where_others_were():
    """In their dtype, which the other floating-point arrays take; copies are copies."""
    with jax.enable_x64(True):
        state = {"w": jnp.ones(2, jnp.float32), "mu": jnp.ones(2, jnp.float32), "count": jnp.zeros((), jnp.int32)}
        new = loaded({"p": state}, "p", {"w": np.full(2, 5.0)})["p"]
        assert new["w"].dtype == new["mu"].dtype == jnp.float64 and new["count"].dtype == jnp.int32
        assert new["w"][0] == 5
    assert copied(state)["w"] is not state["w"]


SHARDED = {"w": Leaf((16, 32), 4, ("data", "model")), "b": Leaf((32,), 4, ("model",))}
USED = {"w": Leaf((16, 32), 4, (None, "model")), "b": SHARDED["b"]}


@pytest.mark.parametrize(
    ("what", "entry"),
    [
        ("parameters", moved("all-gather", ("data",), (4, 16))),
        ("parameters", moved("all-gather", ("data",), (16, 1, 4))),
        ("gradients", moved("all-reduce", ("data",), (16, 16))),
        ("gradients", moved("reduce-scatter", ("data",), (16, 16))),
        ("gradients", moved("all-reduce", ("data",), (16,))),
        ("gradients", moved("all-reduce", ("data",), (256,))),
        ("metrics", moved("all-reduce", ("data",), ())),
        ("activations", moved("all-reduce", ("model",), (16, 16))),
        ("activations", moved("all-reduce", ("model",), (32,), phase="forward")),
        ("activations", moved("all-gather", ("model",), (64, 8))),
        ("activations", moved("collective-permute", ("model",), (4, 16))),
    ],
)
def test_payloads_are_inferred_from_shapes(what, entry):
    """A gradient has the shape of a parameter in use, a gathered parameter that of its shard."""
    assert payload(*entry, weights(SHARDED, None, USED), MESH, {"data"}) == what


def test_updated_shards_are_parameters():
    """As ZeRO gathers them: the parameter is whole, its moment is split."""
    whole, moments = {"w": Leaf((16, 32), 4, ())}, {"mu/w": Leaf((16, 32), 4, ("data",))}
    assert (
        payload(*moved("all-gather", ("data",), (4, 32)), weights(whole, moments, {}), MESH, {"data"}) == "parameters"
    )


def test_a_shard_of_the_shape_of_a_bias_is_counted_once():
    """A kernel of (32, 8), scattered by columns, has shards of 32 numbers: its reduction counts with the bias's."""
    kernel, bias = Leaf((32, 8), 4, (None, "data")), Leaf((32,), 4, ())
    of = weights({"kernel": kernel, "bias": bias}, None, {"kernel": Leaf((32, 8), 4, ()), "bias": bias})
    scattered = Seen(("reduce-scatter", ("data",), "gradients"), (8, 32), 1024, 1)
    reduced = Seen(("all-reduce", ("data",), "gradients"), (32,), 128, 1)
    theory = Theory({"data": 8}, of, {"data"}, {"kernel": kernel, "bias": bias})
    assert [theory.times([weight], "data", [scattered, reduced]) for weight in of] == [1, 1]
    assert theory.times(of[1:], "data", [scattered]) == Fraction(1, 2)


def test_lines_add_up():
    """By operation, axes and payload. A slice behind an all-reduce is a scatter where the gradient is scattered."""
    sliced = moved("reduce-scatter", ("data",), (16, 16), realized_as="all-reduce + dynamic-slice")
    entries = [sliced, moved("all-reduce", ("data",), (), tensors=2), moved("all-gather", ("data",), (4, 16))]
    of = weights(SHARDED, None, USED)
    for scattered, operation in (({"data"}, "reduce-scatter"), (set(), "all-reduce")):
        seen, unsaid = sorted_out(entries, of, MESH, {"data"}, scattered)
        assert [(line.operation, line.payload, line.bytes) for line in lines(seen)] == [
            ("all-gather", "parameters", 4 * 4 * 16),
            (operation, "gradients", 4 * 16 * 16),
            ("all-reduce", "metrics", 8),
        ]
        assert unsaid == []


def test_unknown_amounts_are_said():
    """What a loop on data moves is no line."""
    unknown = Collective("all-reduce", ("data",), None, None, None, "f32", "all-reduce", "other"), (4,)
    seen, [said] = sorted_out([unknown] * 2, weights(SHARDED, None, USED), MESH, {"data"}, set())
    assert not seen and "an unknown number of bytes" in said and said.endswith("both budgets are left out")


def test_vectors_are_gathered_over_any_axis_and_matrices_are_not():
    """A norm's scale costs less than what it scales, alone or in a scanned stack; a matrix is asked about."""
    both = P(("data", "model"))
    shapes = {"norm": ((32,), both), "norms": ((2, 32), P(None, ("data", "model"))), "kernel": ((32, 8), both)}
    of = weights({path: Leaf(shape, 4, tuple(spec)) for path, (shape, spec) in shapes.items()}, None, {})
    axes = ("data", "model")
    assert gathered_vectors([moved("all-gather", axes, (4,))], of, MESH) == ["norm", "norms"]
    assert gathered_vectors([moved("all-gather", axes, (4, 8)), moved("all-reduce", axes, (4,))], of, MESH) == []


def test_groups_of_an_axis_exchange_activations_alone():
    """A line names a part of an axis; a sum over groups is several sums, which no line promises."""
    grouped = moved("all-reduce", ("data:(1)2",), (8, 4))
    seen, [said] = sorted_out([grouped], weights(SHARDED, None, USED), MESH, {"data"}, set())
    assert not seen and "all-reduce over data:(1)2 moves 128 bytes, which no budget can say of groups of an" in said
    [seen], said = sorted_out([moved("all-gather", ("data:(1)2",), (7, 3))], [], MESH, {"data"}, set())
    assert seen.lane == ("all-gather", ("data:(1)2",), "activations") and not said


def test_ids_are_examples_where_parameters_are_stored_in_shards():
    """There activations do not move; elsewhere, as on the axis of a tensor, they may be a router's choices."""
    of = weights({"kernel": Leaf((32, 8), 4, ("data",))}, None, {})
    for axes, what in ((("data",), "examples"), (("model",), "activations")):
        entry, shape = moved("all-gather", axes, (7, 3))
        [seen], said = sorted_out([(replace(entry, dtype="s32"), shape)], of, MESH, {"data"}, set())
        assert seen.lane == ("all-gather", axes, what) and not said


def test_written_modules_are_python():
    """The contract is what was given, each question stands above its field, lines are short."""
    contract = Contract(
        parameters={"*kernel": P(None, ("data", "model")), "*": P()},
        step=(
            Communication("all-reduce", ("data",), "gradients", 123456),
            Communication("all-reduce", ("data",), "metrics", 4),
        ),
        mask="valid",
        microbatches=4,
    )
    questions = (
        Question("step", "gradients of w: reduced twice over data: intended?"),
        Question("init", "odd: " + 30 * "word "),
    )
    text = render(Adoption(ADAPTER, contract, questions), "my_trainer_meshproof")
    tree = ast.parse(text)
    [given] = [node for node in tree.body if isinstance(node, ast.Assign)]
    names = {"Contract": Contract, "Communication": Communication, "P": P}
    assert eval(compile(ast.Expression(given.value), "contract", "eval"), names) == contract  # noqa: S307
    before, _, after = text.partition("    # ? gradients of w: reduced twice over data: intended?\n")
    assert after.startswith("    step=(") and "# ? odd" in after
    assert max(map(len, text.splitlines())) <= 120
    assert "meshproof check --impl my_trainer_meshproof" in before


def test_changes_are_the_lines_that_differ():
    """As a diff; of the same text there are none."""
    one = render(Adoption(ADAPTER, Contract(batch={"*": P("data")}), ()), "a")
    other = render(Adoption(ADAPTER, Contract(batch={"*": P()}), ()), "a")
    assert changes(one, one) == []
    assert [line for line in changes(one, other) if line[0] in "+-"][2:] == [
        '-    batch={"*": P("data")},',
        '+    batch={"*": P()},',
    ]


def test_specs_and_names_are_spelled():
    """As they are read."""
    assert spelled_spec(P(None, ("a", "b"), "c", None)) == 'P(None, ("a", "b"), "c")'
    assert named(["a"]) == "a" and named(["a", "b"]) == "a and b" and named(list("abcde")) == "a, b, c and 2 more"


SPLIT_BATCH = Theory({"data": 8}, weights({"scale": Leaf((32,), 4, ())}, None, {}), {"data"}, {})


def reduced(what, tensors, shape=(32,)):
    """Over the batch's axis, in one lane of the budget."""
    return Seen(("all-reduce", ("data",), what), shape, 4 * int(np.prod(shape)) * tensors, tensors)


def test_statistics_stand_apart_from_gradients_of_their_shape():
    """Mean and mean square, in the backward pass again; two of them may travel as one."""
    stored = {"norm/mean": Leaf((32,), 4, ()), "norm/var": Leaf((32,), 4, ()), "average/scale": Leaf((32,), 4, ())}
    sizes = running(stored, {"scale": Leaf((32,), 4, ())})
    assert sizes == [32, 32], "an average of a parameter is no statistic"
    forward = in_forward([reduced("activations", 2), reduced("metrics", 1, ())], sizes, {"data"})
    assert forward == [reduced("statistics", 2), reduced("metrics", 1, ())]
    seen = [*[reduced("gradients", 1)] * 4, reduced("metrics", 1, ())]
    expected = [reduced("gradients", 1), reduced("statistics", 3), reduced("metrics", 1, ())]
    assert in_step(SPLIT_BATCH, seen, forward, sizes, 2, []) == expected
    assert in_step(SPLIT_BATCH, seen, None, sizes, 2, []) == expected, "where the forward pass is not shown"
    [joined] = in_forward([reduced("activations", 1, (64,))], sizes, {"data"})
    assert joined == reduced("statistics", 1, (64,))


def test_what_the_auxiliary_state_alone_keeps_is_reduced_once_in_a_step():
    """As the counts of a codebook, which no forward pass moves."""
    for seen, moved in ((1, [reduced("statistics", 1)]), (3, [reduced("activations", 3)])):
        assert in_step(SPLIT_BATCH, [reduced("activations", seen)], [], [32], 2, []) == moved


def test_what_an_optimizer_keeps_beside_moments_is_reduced_once():
    """As a preconditioner; twice is a second reduction of something else."""
    for seen, moved in ((1, [reduced("statistics", 1)]), (2, [reduced("activations", 2)])):
        assert in_step(SPLIT_BATCH, [reduced("activations", seen)], [], [], 2, [32]) == moved


def test_what_no_statistic_explains_stays_a_gradient():
    """More than each pass reduces, no forward pass that reduces any, and what is gathered."""
    sizes, forward = [32], [reduced("statistics", 1)]
    for seen, once in (([reduced("gradients", 4)], forward), ([reduced("gradients", 2)], [])):
        assert in_step(SPLIT_BATCH, seen, once, sizes, 2, []) == seen
    many = [reduced("activations", 3)]
    assert in_forward(many, sizes, {"data"}) == many
    assert in_forward([reduced("activations", 1)], sizes, {"model"}) == [reduced("activations", 1)]
