"""What the stack does where nobody says: every probe answers as its version is known to, and tells a flip by name."""

import re
import warnings

import flax
import jax
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training import common_utils
from flax.training.train_state import TrainState
from jax import lax, random
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.observing import defaults
from meshproof.observing.defaults import PROBES, Probe, draws, every_probe, flipped_defaults, probe_defaults
from meshproof.observing.defaults.probe import ASKED
from meshproof.observing.stack import versions


def findings():
    """The names of the flipped defaults, and what is said of each."""
    told = flipped_defaults(versions() | {"defaults": probe_defaults(with_flax=True)})
    return {words.split()[2]: words for words in told}


def test_this_stack_answers_as_it_is_known_to():
    """Every probe of JAX and of Flax is asked, warns of nothing, and none finds anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = probe_defaults(with_flax=True)
    assert flipped_defaults(versions() | {"defaults": answers}) == []
    assert answers.keys() == every_probe().keys()


def test_one_flipped_setting_is_one_finding():
    """Each by its name, and no other probe answers otherwise for it, though each changes what others draw or return."""
    with (
        jax.default_matmul_precision("bfloat16"),
        jax.threefry_partitionable(False),
        jax.default_prng_impl("rbg"),
        jax.numpy_dtype_promotion("strict"),
    ):
        draws.drawn.cache_clear()
        found = findings()
    assert found.keys() == {"matmul_precision", "rng_partitionable"}
    version = jax.__version__
    assert f"default of rng_partitionable on jax {version}: expected True, saw False (" in found["rng_partitionable"]
    assert "Take back what sets it" in found["rng_partitionable"] and "docs/changelog.md" in found["rng_partitionable"]


def test_a_planted_value_is_one_finding(monkeypatch):
    """A function that returns something else, a layer with another default, and a stream with other draws."""
    dropout = nnx.Dropout.__init__

    def without_draws(self, rate, *, deterministic=True, **others):
        dropout(self, rate, deterministic=deterministic, **others)

    monkeypatch.setattr(jnp, "empty", jnp.ones_like)
    monkeypatch.setattr(jnp, "cov", lambda x, rowvar=True: jnp.zeros(()))
    monkeypatch.setattr(nnx.Dropout, "__init__", without_draws)
    monkeypatch.setattr(random, "permutation", lambda key, count: jnp.arange(count))
    draws.drawn.cache_clear()
    jax.clear_caches()
    found = findings()
    draws.drawn.cache_clear()
    jax.clear_caches()
    flipped = {"covariance_of_nothing", "covariance_of_one_row", "dropout_is_deterministic", "draws_permutation"}
    assert found.keys() == flipped | {"empty_arrays", "drawn_as_promised"}
    assert "saw [0, 1, 2, 3, 4, 5, 6, 7]" in found["draws_permutation"]
    assert "on flax " in found["dropout_is_deterministic"]


JIT = jax.jit


def rolled(shape, sharding, data_callback):
    """Each device gets the rows of the one before."""
    return MADE(shape, sharding, lambda index: np.roll(data_callback((slice(None),) * len(shape)), 2, 0)[index])


MADE = jax.make_array_from_callback


@pytest.mark.parametrize(
    ("owner", "name", "planted", "said"),
    [
        (
            *(jax.checkpoint_policies, "dots_saveable", jax.checkpoint_policies.everything_saveable),
            r"answer of recomputed_by_policies on jax .*: dots_saveable: expected \[3, 3\], saw \[3, 2\] \(products",
        ),
        (
            *(jax, "jit", lambda function, donate_argnames=None, **named: JIT(function, **named)),
            "answer of donated on jax .*: donate_argnames: expected True, saw False \\(whether a",
        ),
        (
            *(jnp, "dot", lambda x, y, preferred_element_type=None: x @ y),
            "answer of preferred_type on jax .*: expected 'float32', saw 'bfloat16'",
        ),
        (
            *(jax, "make_array_from_callback", rolled),
            r"answer of rows_of_devices on jax .*: from_callback: expected True, saw False",
        ),
        (
            *(jnp, "argmax", lambda x, axis: jax.sharding.reshard(jnp.zeros(4, int), P(None))),
            r"answer of explicit_layouts on jax .*: argmax: expected \['a'\], saw \[None\]; one-hot: expected",
        ),
        (
            *(lax, "pmin", lax.pmax),
            r"answer of exchanged_by_hand on jax .*: pmin: expected True, saw False \(whether collectives in",
        ),
        (
            *(random, "fold_in", lambda key, number: key),
            "answer of drawn_as_promised on jax .*: fold_in of threefry2x32: expected True, saw False; fold_in of rbg",
        ),
        (
            *(random, "normal", lambda key, shape, out_sharding: jnp.zeros(shape)),
            "answer of drawn_in_shards on jax .*: expected .*, saw ",
        ),
        (
            *(nnx, "get_named_sharding", lambda state, mesh: NamedSharding(mesh, P("a"))),
            r"answer of shardings_by_names on flax .*: nnx: expected \['a', 'b'\], saw \['a', None\]",
        ),
        (
            *(optax, "apply_updates", lambda parameters, updates: jax.tree.map(jnp.add, parameters, updates)),
            r"answer of optimizer_types on optax .*: expected \['bfloat16', 'bfloat16', 'float32'\], saw \['float32'",
        ),
        (
            *(common_utils, "shard", lambda x: x.reshape(-1, 8).T),
            r"answer of rows_for_pmap on flax .*: expected \[\[0, 1\], \[2, 3\]\], saw \[\[0, 8\], \[1, 9\]\]",
        ),
        (
            *(random, "split", lambda key, num=2: jnp.broadcast_to(key, num)),
            r"answer of split_streams on flax .*: expected \[3, 3\], saw",
        ),
        (
            *(TrainState, "apply_gradients", lambda self, grads: self),
            r"answer of train_state on flax .*: expected \[1, 0.5\], saw \[0, 1.0\]",
        ),
        (
            *(linen, "logical_to_mesh_axes", lambda axes, rules: [dict(rules)[axis] for axis in axes]),
            r"answer of repeated_rule on flax .*: linen: expected \['first'\], saw \['last'\] \(which of two rules",
        ),
    ],
)
def test_a_broken_promise_is_told(monkeypatch, owner, name, planted, said):
    """By the entries that differ, also of a release that nobody knows yet; and what to do about it."""
    monkeypatch.setattr(owner, name, planted)
    jax.clear_caches()
    promise = said.split()[2]
    [told] = flipped_defaults(versions() | {"defaults": {promise: every_probe()[promise].ask()}})
    jax.clear_caches()
    assert re.match(said, told), told
    assert told.endswith("look for a report upstream before anything trains on this one")


def test_a_release_to_come_keeps_its_promises():
    """Where a changed value is news, a broken promise is a finding."""
    answers = {"donated": {"donate_argnums": True, "neither": False}, "eigenvalues": "Spectrum"}
    [told] = flipped_defaults({"jax": "99.0", "defaults": answers})
    assert "answer of donated on jax 99.0: donate_argnames: expected True, saw None" in told


def test_what_a_version_lacks_or_raises_is_an_answer(monkeypatch):
    """No probe ends the process that asks it."""
    monkeypatch.delattr(jax, "shard_map")
    answers = {"shard_map_inputs": PROBES["shard_map_inputs"].ask()}
    [finding] = flipped_defaults({"jax": jax.__version__, "defaults": answers})
    assert "saw 'raises AttributeError'" in finding


def test_a_version_of_which_nothing_is_known_is_a_finding(monkeypatch):
    """It is no pass."""
    monkeypatch.setitem(PROBES, "odd", Probe("jax", "whether it is odd", lambda: 7, (("<0.1", 7),)))
    [finding] = flipped_defaults({"jax": "0.12.0", "defaults": {"odd": 7}})
    assert "default of odd on jax 0.12.0: expected one that is known, saw 7 (whether it is odd)" in finding


def test_what_this_machine_lacks_is_not_asked(monkeypatch):
    """Where JAX may use accelerators only, no CPU device has a name: that is no finding."""

    def no_such(backend=None):
        raise RuntimeError(f"no backend {backend}")

    asked = PROBES["cpu_device"]
    monkeypatch.setattr(defaults, "PROBES", {"cpu_device": asked})
    monkeypatch.setattr(defaults, "every_probe", lambda: {"cpu_device": asked})
    assert probe_defaults(with_flax=True).keys() == {"cpu_device"}
    monkeypatch.setattr(jax, "devices", no_such)
    assert probe_defaults(with_flax=True) == {}


def test_under_the_mesh_of_a_trainer_the_rest_is_asked():
    """``jax.pmap`` raises there: that is the trainer's mesh, and no finding."""
    with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))):
        answers = probe_defaults(with_flax=True)
    assert every_probe().keys() - answers.keys() == {
        "pmap_primitive",
        "pmap_shard",
        "rows_of_devices",
        "exchanged_by_hand",
    }
    assert flipped_defaults(versions() | {"defaults": answers}) == []


def test_flax_is_not_asked_for_a_trainer_without_it():
    """Though something else may have imported it meanwhile."""
    asked = probe_defaults(with_flax=False)
    assert asked.keys() == {name for name, probe in every_probe().items() if probe.package == "jax"}


def test_each_probe_says_what_it_answers():
    """In a few words, on one line: it stands in a message and in a table."""
    about = {name: probe.about for name, probe in every_probe().items()}
    assert {name for name, words in about.items() if not words or "\n" in words or words.endswith(".")} == set()


def test_news_of_a_later_release_are_no_finding_unless_numbers_depend_on_them():
    """A setting and a draw fail whatever the version; a shape that the newest known version returns otherwise does."""
    others = {"x64": True, "draws_normal": [0.0] * 4, "trimmed_zeros": [9, 9]}
    newest = {"jax": ASKED["jax"], "flax": ASKED["flax"], "defaults": others}
    named = [{told.split()[2] for told in flipped_defaults(newest | {"jax": jax})} for jax in (ASKED["jax"], "99.0")]
    assert named == [others.keys(), {"x64", "draws_normal"}]


def test_an_option_that_a_trainer_sets_is_no_finding():
    """It is recorded, and compared."""
    before = flax.config.flax_always_shard_variable
    flax.config.update("flax_always_shard_variable", not before)
    try:
        answers = probe_defaults(with_flax=True)
    finally:
        flax.config.update("flax_always_shard_variable", before)
    assert answers["eager_sharding"] is not before
    assert flipped_defaults(versions() | {"defaults": answers}) == []
