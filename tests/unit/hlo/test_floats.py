"""Which types a program computes in as it was written, and where."""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from meshproof.hlo import HloError
from meshproof.hlo.floats import floats, multiplied

ROWS = jnp.ones((8, 8))


def half(x):
    """A product in bfloat16."""
    return (x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16)).astype(jnp.float32)


def by_algorithm(x):
    """A product of float32 that multiplies in bfloat16."""
    return jax.lax.dot(x, x, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32)


def rounded(x):
    """float32 with bfloat16's digits."""
    return jax.lax.reduce_precision(x, 8, 7)


def looped(x):
    """In the body of a loop."""
    return jax.lax.fori_loop(0, 3, lambda _, x: half(x), x)


def read(function, *arguments):
    """The types of a function, by name."""
    text = jax.jit(function).lower(*arguments).as_text("hlo", debug_info=True)
    return {seen.name: seen for seen in floats(text)}


@pytest.mark.parametrize(
    ("function", "name", "bits"),
    [
        (half, "bf16", 16),
        (by_algorithm, "bf16", 16),
        (looped, "bf16", 16),
        (rounded, "reduce-precision to 7 bits of mantissa", 16),
        (lambda x: x.astype(jnp.float8_e4m3fn), "f8e4m3fn", 8),
    ],
)
def test_a_narrow_type_is_seen_with_its_place(function, name, bits):
    """Whatever hides it; the place is a line of this file."""
    seen = read(function, ROWS)[name]
    assert seen.bits == bits and seen.count >= 1
    assert __file__ in seen.first


def test_what_has_one_type_has_one():
    """A scalar is no array, and an integer no float."""
    seen = read(lambda x, n: x * n + jnp.bfloat16(2).astype(jnp.float32), ROWS, jnp.arange(8))
    assert {name: each.bits for name, each in seen.items()} == {"f32": 32}


def test_a_state_that_is_kept_narrow_is_seen():
    """Though nothing is computed in it."""
    assert read(lambda state: state, {"mu": jnp.ones((4, 4), jnp.bfloat16)}).keys() == {"bf16"}


def test_products_and_sums_are_counted():
    """Whatever they make of what is narrow; what takes number by number is none."""
    narrow = jnp.ones((4, 4), jnp.bfloat16)
    assert read(lambda x: (x[:2].T * 2).astype(jnp.float32), narrow)["bf16"].summed == 0
    assert read(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32), narrow)["bf16"].summed == 1
    assert read(lambda x: jax.lax.reduce(x, jnp.bfloat16(0), jax.lax.add, (0,)), narrow)["bf16"].summed == 1
    assert read(half, ROWS)["bf16"].summed == 1


def test_products_that_only_read_a_type_add_up_in_another():
    """Those that make it, and sums in it, are not among them."""

    def counts(function):
        seen = read(function, jnp.ones((4, 4), jnp.bfloat16))["bf16"]
        return seen.summed, seen.multiplied

    assert counts(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32)) == (1, 1)
    assert counts(lambda x: jnp.dot(x, x)) == (1, 0)
    assert counts(lambda x: jax.lax.reduce(x, jnp.bfloat16(0), jax.lax.add, (0,))) == (1, 0)


@pytest.mark.parametrize("precision", ["high", "tensorfloat32"])
def test_products_tell_what_they_ask_for(precision):
    """In the backward pass too, and each in its place; a product at another precision, or of bfloat16, does not."""

    def loss(w, x):
        with jax.default_matmul_precision(precision):
            h = x @ w
        return (half(h) @ w).sum()

    with jax.default_matmul_precision("float32"):
        text = jax.jit(jax.value_and_grad(loss)).lower(ROWS, ROWS).as_text("hlo", debug_info=True)
    seen = Counter((kind, phase) for kind, phase, times in multiplied(text))
    assert seen == {
        ("tf32", "forward"): 1,
        ("tf32", "backward"): 1,
        ("bf16", "forward"): 1,
        ("bf16", "backward"): 2,
        ("f32", "forward"): 1,
        ("f32", "backward"): 2,
    }


def test_products_in_a_loop_count_once_for_each_turn():
    """Also where its body calls a jitted function; what is not differentiated is no pass's."""
    layer = jax.jit(lambda h: jnp.tanh(h @ h))

    def step(x):
        gradient = jax.grad(lambda x: jax.lax.scan(lambda h, _: (layer(h), None), x, None, length=5)[0].sum())(x)
        return gradient @ gradient

    found = multiplied(jax.jit(step).lower(ROWS).as_text("hlo", debug_info=True))
    assert sorted((phase, times) for _, phase, times in found) == [
        ("backward", 5),
        ("backward", 5),
        ("forward", 5),
        ("other", 1),
    ]


def test_without_places_the_name_is_told():
    """A text that was printed without them."""
    [seen] = floats(jax.jit(jnp.sin).lower(ROWS).as_text("hlo"))
    assert seen.first and "?" not in seen.first


def test_text_that_is_no_program_is_refused():
    """Never an empty answer."""
    with pytest.raises(HloError):
        floats("no program")
