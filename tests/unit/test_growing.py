"""Growth is counted, and judged by what is in proportion; cache keys are those of fresh processes."""

import jax
import jax.numpy as jnp
import pytest

from meshproof.observing.seen import Failed
from meshproof.operations.growing import GrowingProgram
from meshproof.operations.growing.keys import observe_keys, unequal
from meshproof.operations.growing.measuring import equations
from meshproof.operations.growing.observing import SLACK, Growth, excessive, grown, observe_growth

FIRST = dict.fromkeys(SLACK, 100.0)


def told(factor, linear):
    """What is said of a program whose every measure grows by a factor."""
    larger = {what: value * factor for what, value in FIRST.items()}
    return [*excessive((*grown("depth", (6, 24), FIRST, larger, linear),))]


def test_what_is_in_proportion_is_right():
    """And what is by squares is not, of whichever measure; a loop does not grow at all."""
    assert not told(4, 4) and not told(1, 1)
    assert len(told(16, 4)) == len(told(4, 1)) == len(SLACK)
    assert told(16, 4)[0] == "equations of the jaxpr: 100 at depth 6, 1600 at depth 24: 16 times that, allowed 5"


def test_equations_within_loops_and_branches_are_counted():
    """Each body once."""

    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(x) * 2, x)

    def flat(x):
        return x + 1

    assert equations(jax.make_jaxpr(flat)(1.0).jaxpr) == 1
    assert equations(jax.make_jaxpr(looped)(1.0).jaxpr) >= 4


def test_a_program_that_raises_is_said_so():
    """With its error; ``note`` has the size that it was at."""
    noted = []

    def make(depth, width):
        if depth > 6:
            raise MemoryError("too deep")
        return (lambda x: x + 1), (jax.ShapeDtypeStruct((width,), "float32"),)

    seen = observe_growth(GrowingProgram("raises", make), noted.append)
    assert isinstance(seen, Failed) and "MemoryError: too deep" in seen.reason
    assert noted == ["depth 6, width 16", "depth 24, width 16"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (({"p": ("a",)}, {"p": ("a",)}), None),
        (({"p": ("a",)}, {"p": ("b",)}), "expected one key of p in two fresh processes, saw a and b"),
        (({"p": ()}, {"p": ("a",)}), "expected a key of p in the compilation cache of a fresh process, saw none"),
    ],
)
def test_keys_that_differ_or_are_missing_are_said(keys, said):
    """A program that is not kept at all proves nothing."""
    found = [*unequal("p", keys)]
    assert found == [] if said is None else said in found[0]


def test_a_process_that_fails_is_said_so():
    """With the last line of its error."""
    seen = observe_keys("no.such.table", ["p"])
    assert isinstance(seen, Failed) and "compile 1 programs, saw:" in seen.reason and "no.such.table" in seen.reason


def test_a_margin_is_a_share_of_what_is_allowed():
    """Of a ratio."""
    assert Growth("depth", "x", ("depth 1", "depth 2"), (10, 20), 4).margin == 0.5
