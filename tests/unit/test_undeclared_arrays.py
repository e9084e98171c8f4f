"""Which arrays of a state no part shows: a message names them."""

import jax.numpy as jnp
import pytest

from meshproof.observing.layouts import undeclared_in

KEPT = jnp.ones((8, 4, 2))


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ([KEPT], ("average",)),
        ([KEPT + 1], ("average",)),
        ([KEPT[0]], ("average",)),
        ([KEPT.astype("int32")], ("kernel", "average")),
        ([], ("kernel", "average")),
        ([KEPT, KEPT[0]], ()),
    ],
)
def test_copies_are_shown_too(shown, told):
    """Of the same shape, or what one device has of it, under ``pmap``; each is one array's. Counters are not told."""
    named = [("kernel", KEPT), ("average", KEPT * 2), ("count", jnp.zeros(()))]
    assert undeclared_in(shown, named) == told
