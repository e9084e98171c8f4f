"""A leaf that a checkpoint lacks must not keep its initial value: the run would go on, and from a mixed state."""

import re

import pytest

from meshproof.chosen import first_of_its_kind

WORD = re.compile(r"\w+")

RETURNED = (
    "none: a state was returned; compare the checkpoint's tree with that of the state first, where what is restored is "
    "merged into an initial state"
)


@pytest.mark.clause("CKP-5", among=first_of_its_kind)
def test_checkpoints_without_a_leaf_are_refused(case, observation, judge):
    """``restore`` MUST raise an error that names the leaf, where a checkpoint lacks one of the state's. (The first leaf
    of the checkpoint, and the last. Of checkpoints in Orbax's format. Judged of each of up to 16 cases; of more, of the
    first whose states have the same parts, split alike, saved and restored by the same code.)"""
    judge.needs(case, "save", "restore")
    refused = judge.see(observation.training.checkpoints.refused)
    judge.clear(
        f"{each.leaf}: expected an error that names it, saw {each.error or RETURNED}"
        for each in refused
        if each.error is None or not names(each.error, each.leaf)
    )


def names(error, leaf):
    """Whether an error has the words of a leaf's path one after another. Of NNX's variables the arrays are called
    ``value``, which need not be said."""
    return f"/{'/'.join(WORD.findall(leaf.removesuffix('/value')))}/" in f"/{'/'.join(WORD.findall(error))}/"
