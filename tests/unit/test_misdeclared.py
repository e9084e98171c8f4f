"""A pattern of the contract that matches no leaf is one finding, of the clause that judges that layout."""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract
from meshproof.judging.judge import Judge
from meshproof.judging.records import Record
from meshproof.observing.layouts import DECLARED_BY, layout_of_tree
from meshproof.observing.seen import ToldOnce


@pytest.mark.parametrize("part", DECLARED_BY)
def test_a_pattern_without_a_leaf_is_misdeclared(part):
    """The reason names the pattern and the leaves that are there."""
    case = SimpleNamespace(contract=Contract(**{part: {"dense_*": P("data"), "*": P()}}))
    subject = SimpleNamespace(case=case, model=("hidden",))
    seen = layout_of_tree(subject, part, {"hidden": jnp.ones(4)})
    assert isinstance(seen, ToldOnce) and seen.clause == DECLARED_BY[part]
    assert f"expected leaves of {part} that match ['dense_*'], saw none among ['hidden']" in seen.reason


def test_it_is_told_once():
    """Its own clause fails; another is not supported, and says which one fails."""
    seen = ToldOnce("expected leaves of parameters that match ['dense_*']", "SHD-1")
    own, other = Record("", "SHD-1", "", "a"), Record("", "COM-2", "", "a")
    with pytest.raises(pytest.fail.Exception, match="dense_"):
        Judge(own, "").see(seen)
    with pytest.raises(pytest.skip.Exception):
        Judge(other, "").see(seen)
    assert (other.status, other.message) == ("not-supported", f"SHD-1 fails: {seen.reason}")
