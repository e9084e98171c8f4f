"""What a GPU adds in another order in each run, in programs of its own compiler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.hlo import HloError
from meshproof.hlo.unordered import sums_in_any_order
from meshproof.observing.compilers import described
from meshproof.targets import read_target
from meshproof.targets.flags import ORDERED, adds_in_any_order

pytest.importorskip("jax_cuda13_plugin", reason="no compiler for GPUs: pip install -e '.[gpu]'")

PLACES = ((8,), "int32")


def embedded(table, rows):
    """A number of rows of a table."""
    return jnp.tanh(table[rows]).sum()


def pooled(x):
    """A number of maxima over windows that overlap."""
    return jnp.square(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3), (2, 2), "VALID")).sum()


def convolved(kernel, x):
    """A number of what a kernel makes of pictures."""
    return jax.lax.conv(x, kernel, (1, 1), "SAME").sum()


def compiled(function, shapes, **options):
    """As XLA has it for one H200."""
    placed = NamedSharding(Mesh(np.array(described(read_target("gpu:h200:1"))), ("data",)), P())
    arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=placed) for shape, dtype in shapes]
    untuned = {"xla_gpu_autotune_level": 0} | options
    return jax.jit(function).lower(*arguments).compile(compiler_options=untuned).as_text()


SUMS = {
    "an embedding's gradient": (
        jax.grad(embedded),
        [((96, 64), "float32"), PLACES],
        "scatter f32[96,64], jit(embedded)",
    ),
    "in bfloat16": (jax.grad(embedded), [((96, 64), "bfloat16"), PLACES], "scatter bf16[96,64], jit(embedded)"),
    "overlapping maxima": (jax.grad(pooled), [((9, 9), "float32")], "scatter f32[9,9], jit(pooled)"),
}


@pytest.mark.parametrize(("function", "shapes", "named"), SUMS.values(), ids=SUMS)
def test_atomic_sums_are_named(function, shapes, named):
    """Once, by shape and path; under XLA's own flags there are none."""
    [found] = sums_in_any_order(compiled(function, shapes))
    assert found.startswith(named)
    for flag in ORDERED:
        assert not sums_in_any_order(compiled(function, shapes, **{flag: True}))


def test_cudnn_may_add_so():
    """Its backward kernels; the program does not tell which of them it is."""
    found = sums_in_any_order(compiled(jax.grad(convolved), [((16, 8, 3, 3), "float32"), ((4, 8, 8, 8), "float32")]))
    assert [each.partition(", ")[0] for each in found] == ["custom-call f32[16,3,3,8]"]


ORDERLY = {
    "a matrix product": (jnp.matmul, [((64, 64), "float32")] * 2),
    "a sum": (jnp.sum, [((1024, 1024), "float32")]),
    "whole numbers": (lambda x, at: x.at[at].add(1), [((96,), "int32"), PLACES]),
    "every place once": (
        lambda x, at: x.at[at].add(1.0, unique_indices=True, indices_are_sorted=True),
        [((96,), "float32"), PLACES],
    ),
}


@pytest.mark.parametrize(("function", "shapes"), ORDERLY.values(), ids=ORDERLY)
def test_other_sums_have_one_order(function, shapes):
    """Nothing is named of what gives the same bits in each run."""
    assert not sums_in_any_order(compiled(function, shapes))


def test_flags_keep_the_order():
    """On GPUs alone is it lost, and not where either flag is set."""
    assert adds_in_any_order("gpu", {}) and not adds_in_any_order("cpu", {})
    assert adds_in_any_order("gpu", {"XLA_FLAGS": f"--{ORDERED[0]}=false"})
    for word in (f"--{ORDERED[0]}=true", f"--{ORDERED[1]}", f"--xla_a=b --{ORDERED[1]}=True"):
        assert not adds_in_any_order("gpu", {"XLA_FLAGS": word})


def test_what_cannot_be_read_is_refused():
    """With the census's error."""
    with pytest.raises(HloError):
        sums_in_any_order("HloModule nothing")
