"""What an observation looks at."""

import numpy as np
from jax.sharding import PartitionSpec

from meshproof.cases import Case
from meshproof.contract import Contract
from meshproof.observation import Failed
from meshproof.observe import observe
from tests.implementations.minimal import Trainer


class Canonical(Trainer):
    """Says how an array lies that is none of its canonical tree."""

    contract = Contract(parameters={"weights/*": PartitionSpec()})

    def parameters(self, state):
        """One leaf."""
        return state


class AtRest(Canonical):
    """Says where that array is."""

    def at_rest(self, state):
        """The same weight, as it is kept."""
        return {"parameters": {"weights": {"all": state["w"]}}, "optimizer_state": {}}


def case(strategy):
    """The case of a strategy on one device."""
    return Case("line", strategy, {"data": 1}, "cpu")


def test_layout_is_that_of_the_arrays_at_rest():
    """Where a strategy shows its arrays at rest their layout is judged, and numbers are those of the canonical tree."""
    seen = observe(case(AtRest()))
    [leaf] = seen.before.parameters
    assert (leaf.path, leaf.declared, leaf.as_declared) == ("weights/all", (), True)
    assert list(seen.initial) == ["w"] and np.isfinite(seen.initial["w"])


def test_layout_is_else_that_of_the_canonical_tree():
    """Without them a declaration of what is not in the canonical tree is a fault that names both."""
    seen = observe(case(Canonical()))
    assert isinstance(seen.before.parameters, Failed)
    assert "['weights/*']" in seen.before.parameters.reason and "['w']" in seen.before.parameters.reason
