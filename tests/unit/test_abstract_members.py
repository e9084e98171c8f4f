"""What a form says of its state and batch without arrays is what it makes, and it asks for no device but its mesh's."""

from types import SimpleNamespace

import jax
import pytest

from meshproof.cases import load_cases
from meshproof.observing import serving
from meshproof.observing.seen import Failed

pytestmark = pytest.mark.any_stack

CASES = {case.id: case.strategy for case in load_cases("reference_impl")}
FORMS = {type(form): name for name, form in reversed(CASES.items())}
MADE = [pytest.param(name, marks=[] if name in FORMS.values() else [pytest.mark.thorough]) for name in CASES]
"""Every case, and the first of each form in every run."""


def described(tree):
    """Of each leaf, by path, shape and dtype."""
    return [(jax.tree_util.keystr(path), leaf.shape, leaf.dtype) for path, leaf in jax.tree.leaves_with_path(tree)]


def misplaced(abstract, real):
    """The paths of leaves that are sharded otherwise than said."""
    pairs = zip(jax.tree.leaves_with_path(abstract), jax.tree.leaves(real), strict=True)
    return [
        jax.tree_util.keystr(path)
        for (path, said), made in pairs
        if not said.sharding.is_equivalent_to(made.sharding, made.ndim)
    ]


@pytest.mark.parametrize("name", MADE)
def test_abstract_members_are_what_is_made(name):
    """State and batch: tree structure, shapes, dtypes and shardings are those of the arrays; and none is an array."""
    form = CASES[name]
    [batch] = form.batches(1)
    made = form.init(jax.random.key(0)), form.shard_batch(batch)
    said = form.abstract_state(), form.abstract_batch()
    assert {type(leaf) for leaf in jax.tree.leaves(said)} == {jax.ShapeDtypeStruct}
    assert described(said) == described(made)
    if form.framework != "nnx":  # whose objects hold the functions that initialised them, others in each
        assert jax.tree.structure(said) == jax.tree.structure(made)
    assert misplaced(said, made) == []


@pytest.mark.parametrize("name", FORMS.values())
def test_form_on_other_devices_asks_for_no_others(name, monkeypatch):
    """With the machine's devices in reverse, everything that a step is compiled of is on them in that order."""
    devices = jax.devices()[::-1]
    monkeypatch.setattr(jax, "devices", lambda *_: pytest.fail("jax.devices() was asked for"))
    form = CASES[name].on(devices)
    said = form.abstract_state(), form.abstract_batch()
    form.train_step.lower(*said)
    assert [*form.mesh.devices.flat] == devices[: form.mesh.size]
    assert {leaf.sharding.mesh for leaf in jax.tree.leaves(said)} == {form.mesh}


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            AttributeError("'jaxlib._jax.Executable' object has no attribute 'local_devices'"),
            "is computed there on the",
        ),
        (ValueError("another"), "ValueError: another ("),
    ],
)
def test_what_is_computed_on_a_targets_devices_is_told_as_that(monkeypatch, raised, told):
    """A program of a compiler alone cannot be run: JAX speaks of an attribute."""

    def raises(*_):
        raise raised

    monkeypatch.setattr(serving, "observe_compile_only", raises)
    case, compiler = SimpleNamespace(devices=1), SimpleNamespace(devices=[None])
    seen = serving.compiled(case, compiler)
    assert isinstance(seen, Failed) and told in seen.reason
    assert (serving.COMPUTED in seen.reason) == isinstance(raised, AttributeError)
