"""The sizes are what they are named for, can be built without their memory, and are refused where they do not fit."""

import os
from dataclasses import replace
from math import prod
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks import fit
from benchmarks.program import compile_program
from benchmarks.record import identity
from benchmarks.sizes import SIZES, size_of
from meshproof.cases import load_cases
from meshproof.contract import leaves
from reference_impl.models.gpt import GPT
from reference_impl.models.mlp import MLP
from reference_impl.theory.flops import model_flops

PARAMETERS = {
    "gpt2-124m": 124_439_808 - 12 * 768,
    "gpt2-124m-padded": 124_439_808 - 12 * 768 + 47 * 768,
    "gpt2-xl-1.5b": 1_557_611_200 - 48 * 1600,
    "gpt2-xl-1.5b-padded": 1_557_611_200 - 48 * 1600 + 47 * 1600,
    "mlp-8192": 784 * 8192 + 2 * 8192 * 8192 + 8192 * 10 + 3 * 8192 + 10,
}
"""Of the original GPT-2 (124M, XL) without the biases of the keys; and by hand."""

TRACED = ("single_device-jax-gpt@", "fsdp-jax-gpt@data=2", "single_device-jax-mlp@", "fsdp-jax-mlp@data=2")


def first(size):
    """The case on a single device."""
    return load_cases(SIZES[size])[0]


@pytest.mark.parametrize("size", PARAMETERS)
def test_parameters_are_counted(size):
    """A size has the parameters of the model that it is named for, and its arrays can be traced without being made."""
    network = first(size).strategy.network
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == PARAMETERS[size]
    assert sum(prod(shape) for _, shape in leaves(network.shapes)) == PARAMETERS[size]


@pytest.mark.parametrize("size", ["gpt2-124m", "gpt2-xl-1.5b"])
def test_what_larger_sizes_train_on_can_be_learned(size):
    """Each token of a batch comes several times, else ten steps do not lower the loss enough to judge by it."""
    form = first(size).strategy
    tokens = next(iter(form.batches(1)))["x"]
    assert tokens.shape == (form.batch_size, 1024)
    assert tokens.size >= 2 * len(np.unique(tokens))


@pytest.mark.parametrize("size", list(SIZES)[2:])
def test_steps_of_every_size_can_be_traced(size):
    """On one device and fully sharded on two, a step of each size can be traced for shapes alone, and keeps them.

    With two blocks of a transformer: they are alike.
    """
    for given in (case.strategy for case in load_cases(SIZES[size]) if case.id.startswith(TRACED)):
        strategy = replace(given, network=shortened(given.network))
        state = strategy.init.lower(jax.random.key(0)).out_info
        batch = {
            name: jax.ShapeDtypeStruct((strategy.batch_size, *shape), dtype)
            for name, (shape, dtype) in field_shapes(strategy.network).items()
        }
        with jax.set_mesh(strategy.mesh):
            after, metrics = jax.eval_shape(strategy.train_step.jitted, state, batch)
        assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(lambda leaf: leaf.shape, state)
        assert metrics["loss"].shape == () and metrics["loss"].dtype == "float32"


def shortened(network):
    """A transformer, modified as it is, with two blocks; other models as they are."""
    if isinstance(network, GPT):
        return replace(network, blocks=2)
    return network if isinstance(network, MLP) else replace(network, model=shortened(network.model))


def field_shapes(network):
    """Shape, without the batch, and dtype of the fields of a batch."""
    while not isinstance(network, GPT | MLP):
        network = network.model
    if isinstance(network, GPT):
        return dict.fromkeys("xy", ((network.length,), "int32"))
    return {"x": (network.widths[:1], "float32"), "y": ((), "int32")}


def test_model_flops_are_those_of_the_paper():
    """A transformer's are 6·N + 12·L·H·Q·T a token, by the formula of PaLM's appendix B."""
    gpt = first("gpt2-124m").strategy.network.model
    kernels = [prod(shape) for path, shape in leaves(gpt.shapes) if path.endswith("kernel")]
    matrices = sum(kernels) + gpt.vocab * gpt.embed
    token = 6 * matrices + 12 * gpt.blocks * gpt.heads * gpt.head_dim * gpt.length
    known = model_flops(gpt, 16)
    assert known.step == pytest.approx(token * 16 * gpt.length) == 3 * known.forward


def test_what_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    """The error names the bytes that are needed, those there are, and a size that fits; nothing is run."""
    limit = 200_000_000
    monkeypatch.setattr(fit, "device_bytes", lambda: limit)
    case = first("gpt2-124m")
    compiled = []

    def compile_noted(case, *arguments):
        compiled.append(case)
        return compile_program(case, *arguments)

    monkeypatch.setattr(fit, "compile_program", compile_noted)
    with pytest.raises(fit.DoesNotFitError) as refused:
        fit.compile_fitting(case, SIZES["gpt2-124m"], None)
    state = 3 * 4 * PARAMETERS["gpt2-124m"] + 4
    assert f"needs {state:,} bytes on each device for its state alone, cpu has {limit:,}" in str(refused.value)
    assert str(refused.value).endswith("--size small fits")
    assert [other.strategy.network.embed for other in compiled] == [256]


def test_temporary_memory_counts(monkeypatch):
    """A step whose state fits and whose temporary buffers do not is refused too."""
    case = first("tiny")
    batch = case.strategy.shard_batch(next(iter(case.strategy.batches(1))))
    needed = fit.compile_abstract(case, batch).needed_bytes
    state = fit.state_bytes(case)
    assert needed > state == 2 * 4 * sum(prod(shape) for _, shape in leaves(case.strategy.network.shapes))
    monkeypatch.setattr(fit, "device_bytes", lambda: needed)
    assert fit.compile_fitting(case, SIZES["tiny"], batch).needed_bytes == needed
    monkeypatch.setattr(fit, "device_bytes", lambda: needed - 1)
    with pytest.raises(fit.DoesNotFitError, match=f"needs {needed:,} bytes .* nothing smaller is known to fit"):
        fit.compile_fitting(case, SIZES["tiny"], batch)


@pytest.mark.parametrize(
    ("platform", "stats", "known"),
    [("gpu", {"bytes_limit": 7}, 7), ("gpu", None, None), ("tpu", {}, None), ("cpu", {"bytes_limit": 7}, 7)],
)
def test_memory_is_the_devices_own(monkeypatch, platform, stats, known):
    """What an accelerator does not tell is unknown, and not the host's memory, which virtual devices share."""
    device = SimpleNamespace(platform=platform, memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert fit.device_bytes() == known


def test_virtual_devices_share_the_hosts_memory():
    """Each an equal part."""
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert fit.device_bytes() == host // jax.local_device_count()


def test_unknown_memory_refuses_nothing(monkeypatch):
    """Where a device does not tell what it has, the step is compiled, and a warning says that nothing was judged."""
    monkeypatch.setattr(fit, "device_bytes", lambda: None)
    case = first("tiny")
    batch = case.strategy.shard_batch(next(iter(case.strategy.batches(1))))
    with pytest.warns(UserWarning, match="cpu does not tell how much memory it has: whether a step fits is unknown"):
        assert fit.compile_fitting(case, SIZES["tiny"], batch).needed_bytes > 0


def test_sizes_have_names():
    """An implementation that is a size goes by the size's name, any other by its own."""
    assert [size_of(module) for module in SIZES.values()] == list(SIZES)
    assert size_of("my_trainer.meshproof") == "my_trainer.meshproof"


def identities(size):
    """What each case of a size says that it is, without the machine."""
    return [identity(case, size) for case in load_cases(SIZES[size])]


def test_identity_tells_what_a_pipeline_is():
    """Stages, microbatches and chunks are counted from the schedule; what is no pipeline has none."""
    found = {(each["strategy"], each["variant"]): each["pipeline"] for each in identities("book")}
    assert found["pipeline_gpipe", ""] == {"stages": 4, "microbatches": 8, "chunks": 1}
    assert found["pipeline_gpipe", "starved"] == {"stages": 4, "microbatches": 2, "chunks": 1}
    assert found["pipeline_interleaved", ""] == {"stages": 4, "microbatches": 8, "chunks": 2}
    assert found["pipeline_zero_bubble", ""] == {"stages": 4, "microbatches": 8, "chunks": 1, "has_weights": True}
    assert found["fsdp", ""] is None


def test_sweep_varies_one_thing_at_a_time():
    """By batch, mesh and microbatches there are at least three points, with all else of their identity equal."""
    series = {"batch_size": set(), "mesh": set(), "pipeline": set()}
    for varied, sizes in series.items():
        points = {}
        for each in identities("sweep"):
            rest = {key: value for key, value in each.items() if key not in (varied, "variant")}
            if varied == "pipeline" and each["pipeline"]:
                rest["batch_size"] //= each["pipeline"]["microbatches"]
            points.setdefault(repr(rest), set()).add(repr(each[varied]))
        sizes |= {len(found) for found in points.values()}
    assert max(series["batch_size"]) == max(series["mesh"]) == 3 and max(series["pipeline"]) == 4
