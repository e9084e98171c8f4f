"""Products are counted as often as they run."""

import jax
import jax.numpy as jnp
import pytest

from meshproof.hlo import HloError
from meshproof.hlo.products import flops_of_products, products
from tests.unit.hlo.test_loops import loop

SQUARE = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def compiled(function, *arguments):
    """The text of a compiled function of squares."""
    return jax.jit(function).lower(*(arguments or (SQUARE,))).compile().as_text()


def looped(times):
    """A function that squares so often, one after the other."""
    return lambda x: jax.lax.fori_loop(0, times, lambda _, y: jnp.tanh(y @ y), x)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: x + 1, 0),
        (lambda x: x @ x, 1),
        (looped(5), 5),
        (lambda x: jnp.tanh(looped(5)(x)) @ x, 6),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: looped(5)(y), x), 15),
    ],
)
def test_products_are_counted_as_often_as_they_run(function, count):
    """In nested loops once for each iteration; each of an 8×8 square by itself is 2·8³ operations."""
    text = compiled(function)
    assert (products(text), flops_of_products(text)) == (count, count * 2 * 8**3)


def test_half_a_batch_twice_multiplies_as_much_as_all_of_it():
    """In two products in place of one."""
    halves = jax.ShapeDtypeStruct((2, 4, 8), jnp.float32)
    text = compiled(lambda w, x: jax.lax.map(lambda part: jnp.tanh(part @ w), x), SQUARE, halves)
    assert (products(text), flops_of_products(text)) == (2, 2 * 8**3)


def test_products_of_an_optimizer_are_told_apart():
    """Of what is differentiated there are three, forward and back; two more are of its gradient."""
    text = compiled(lambda x: jnp.linalg.matrix_power(jax.grad(lambda w: jnp.sum(jnp.tanh(w @ w)))(x), 3))
    assert (products(text), products(text, differentiated=True)) == (5, 3)


def test_unknown_counts_are_unknown():
    """In a loop that ends when it likes, or in one of two branches that differ, nobody knows how many run."""
    until = compiled(lambda x: jax.lax.while_loop(lambda y: y[0, 0] < 1, lambda y: jnp.tanh(y @ y) + 1, x))
    assert products(until) is None
    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    branch = compiled(lambda go, x: jax.lax.cond(go, lambda: x @ x, lambda: jnp.tanh(x)), flag, SQUARE)
    assert products(branch) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (loop().replace("tuple(%start, %p)", "tuple(%lost, %p)"), "operand lost is not defined"),
        (loop().replace("tuple(%start, %p)", "tuple(%w, %p)"), "operand w is not defined before"),
        (loop().replace("tuple(%start, %p)", "tuple(%t, %p)"), "operand t is not defined before"),
        (loop().replace("tuple(%start, %p)", "tuple()"), "expected an operand 0, saw 0"),
        (loop().replace("all-reduce(%x)", "call(%x)").replace("to_apply=%add", "to_apply=%body"), "calls itself"),
    ],
)
def test_damaged_text_is_refused(text, problem):
    """An operand that is lost or comes too late, a tuple that lost its elements, a body that calls itself."""
    with pytest.raises(HloError, match=problem):
        products(text)
