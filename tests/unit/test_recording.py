"""What the report keeps of an observation."""

import pickle

import ml_dtypes
import numpy as np
import pytest

from meshproof.cases import Case
from meshproof.contract import nest
from meshproof.observing.brought_truth import digest
from meshproof.observing.session import observe
from meshproof.run.recording import case_entry
from tests.implementations.minimal import Trainer
from tests.implementations.odd import odd

STATE = (
    {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.ones(2, ml_dtypes.bfloat16)},
    {"count": np.zeros((), np.int32)},
)


def entry(strategy):
    """The report's entry of a strategy on one device, without a truth; its observation comes from another process."""
    case = Case("line", strategy, {"data": 1}, "cpu")
    return case_entry(case, pickle.loads(pickle.dumps(observe(case))), None)


def test_a_digest_is_that_of_older_reports():
    """The digest of given bits is a number that reports of earlier versions hold; nesting the tree changes nothing."""
    assert digest(STATE) == "75b3b57f5e163e65c8747d5b4b379367b895c6bb6f4d49c962df7c920d1c1758"
    assert digest([{"a/b": STATE[0]["w"]}]) == digest([nest({"a/b": STATE[0]["w"]})])


@pytest.mark.parametrize(
    "other",
    [
        {"w": np.nextafter(STATE[0]["w"], np.float32(9)), "b": STATE[0]["b"]},
        {"w": STATE[0]["w"].T, "b": STATE[0]["b"]},
        {"v": STATE[0]["w"], "b": STATE[0]["b"]},
        {"w": STATE[0]["w"].view(np.int32), "b": STATE[0]["b"]},
    ],
    ids=["one bit", "shape", "path", "dtype"],
)
def test_a_digest_is_of_every_bit(other):
    """Another bit, shape, path or dtype gives another digest."""
    assert digest([other, STATE[1]]) != digest(STATE)


def test_what_was_not_seen_is_told_by_its_place():
    """Every reason once, with the places of the values that are absent for it; a program that was never compiled is one
    place, and has no memory."""
    recorded = entry(Trainer())
    reasons = recorded["problem"].split("; ")
    assert "programs.step: train_step has no lower(): hand over the jitted function itself, or give it one" in reasons
    assert "start.loss, programs.forward: the strategy has no loss" in reasons
    assert "gradients.promotions, gradients.values, gradients.layout: the strategy has no gradients" in reasons
    assert "gradients.unchecked: the strategy has no unchecked_gradients" in reasons
    assert len(recorded["losses"]) == 3 and list(recorded["shardings"]) == ["['w']"]
    facts = ("collectives", "forward_collectives", "memory", "flops", "compile_seconds")
    assert [recorded[fact] for fact in facts] == [None] * len(facts)


def test_a_step_that_raises_leaves_the_rest():
    """Where no step was taken there are no losses and no digest, and the layout of the state that there was."""
    recorded = entry(odd(train_step=lambda *_: 1 / 0))
    assert (recorded["losses"], recorded["digest"], list(recorded["shardings"])) == ([], None, ["['w']"])
    raised = "train step 1 raised ZeroDivisionError: division by zero"
    assert f"training.steps, training.losses, training.compilations: {raised}" in recorded["problem"]
