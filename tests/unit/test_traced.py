"""What a step does with its parameters, as its jaxpr tells."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from meshproof.adopting.traced import draws_bits, looked_up

STATE = {"params": {"table": jnp.ones((8, 4)), "other": jnp.ones((8, 4)), "head": jnp.ones((4, 8))}, "key": 0}
BATCH = {"x": jnp.arange(3)}


def subject(step):
    """As far as is asked."""
    trainer = SimpleNamespace(train_step=jax.jit(step), parameters=lambda state: state["params"])
    return SimpleNamespace(strategy=trainer, batches=[BATCH])


def step(w, x, table="table", looked=lambda table, x: table.astype("bfloat16")[x[None]][0]):
    """A lookup, in a loop that is rematerialised, and a product."""
    row, _ = jax.lax.scan(jax.checkpoint(lambda h, at: (h + looked(w[table], at), None)), jnp.zeros(4), x)
    return row @ w["head"]


@pytest.mark.parametrize(
    ("loss", "tables"),
    [
        (step, {"table"}),
        (lambda w, x: step(w, x) + w["table"] @ jnp.ones(4), set()),
        (lambda w, x: step(w, x) + step(w, x, "other"), {"table", "other"}),
        (lambda w, x: step(w, x, looked=lambda table, at: jax.nn.one_hot(at, 8) @ table), set()),
    ],
    ids=["untied", "tied", "two", "multiplied"],
)
def test_what_is_looked_up_is_no_operand_of_a_product(loss, tables):
    """Through casts, loops and gradients; a tied embedding is both, and so is none."""

    def update(state, batch):
        gradients = jax.grad(lambda w: loss(w, batch["x"]).sum().astype(jnp.float32))(state["params"])
        return state | {"params": jax.tree.map(lambda w, g: w - g, state["params"], gradients)}, {}

    assert looked_up(subject(update), STATE) == tables


def test_what_cannot_be_traced_has_no_tables_and_may_draw():
    """Nothing is known of it."""

    def asks(state, batch):
        return float(state["params"]["table"].sum())

    of = subject(asks)
    of.strategy.train_step = asks
    assert looked_up(of, STATE) == frozenset() and draws_bits(of, "train_step", STATE)


@pytest.mark.parametrize("draws", [False, True])
def test_keys_that_are_only_split_draw_nothing(draws):
    """As a dropout of rate 0 leaves them."""

    def step(state, batch):
        key, used = jax.random.split(state["key"])
        return {"key": key}, jax.random.bernoulli(used, 0.5, (3,)).sum() if draws else jnp.zeros(())

    assert draws_bits(subject(step), "train_step", {"key": jax.random.PRNGKey(0)}) == draws
