"""What does not fit the mesh is refused, with both numbers in the message."""

import re
from math import prod

import pytest

from meshproof.contract import spec_axes
from meshproof.measures.pipeline_schedules import count

from .applicability import distributed, has_device_dimension, own_judge, pipelined, starved


def splits_examples(case):
    """The examples are split over several devices, or the contract leaves that open."""
    specs = case.contract.batch
    return distributed(case) and (specs is None or any(parts(case, spec) > 1 for spec in specs.values()))


def parts(case, spec):
    """The number of parts that a spec splits the examples of a field into."""
    return prod(case.mesh[axis] for axis in spec_axes(spec[:1]))


@pytest.mark.clause("ERR-1", applies=splits_examples)
def test_uneven_batches_are_refused(case, observation, judge):
    """A batch that is not divisible by the mesh axes that split it MUST be refused with an error that names the batch
    size and the axis size. (Or be padded, where the contract names a mask: it counts just the given examples, and the
    loss is theirs. Of a trainer that brings no truth any error will do, as that of a library: here and below.)"""
    judge.promised(case.contract.batch, "layout of the batch")
    message = judge.see(observation.refusals.uneven_batch)
    if is_padded(case, observation, judge):
        return
    size = len(next(iter(next(iter(case.strategy.batches(1))).values()))) - 1
    split = {parts(case, spec) for spec in case.contract.batch.values()} - {1}
    judge.clear(refused(case, f"a batch of {size} examples", message, size, *split))


@pytest.mark.clause("ERR-1", applies=has_device_dimension)
def test_batches_without_device_dimension_are_refused(case, observation, judge):
    """A pmap batch without its device dimension MUST be refused with an error that names its size and the number of
    devices (even if the two are equal)."""
    for size, message in judge.see(observation.refusals.missing_dimension).items():
        judge.clear(refused(case, f"a batch of {size} examples without device dimension", message, size, case.devices))


@pytest.mark.clause("ERR-1", applies=pipelined)
def test_uneven_microbatches_are_refused(case, observation, judge):
    """A batch that is not divisible into microbatches MUST be refused with an error that names its size and the number
    of microbatches. (Or be padded, as a batch that the mesh does not divide.)"""
    message = judge.see(observation.refusals.uneven_batch)
    if is_padded(case, observation, judge):
        return
    size = len(next(iter(next(iter(case.strategy.batches(1))).values()))) - 1
    judge.clear(refused(case, f"a batch of {size} examples", message, size, count(case.strategy.schedule).microbatches))


@pytest.mark.clause("ERR-1", applies=starved)
def test_too_few_microbatches_are_warned_of(case, observation, judge):
    """A pipeline of fewer microbatches than stages MUST raise a warning that names both counts, and the efficiency in
    percent."""
    counts = count(case.strategy.schedule)
    numbers = (counts.microbatches, counts.stages, round(100 * (1 - counts.bubble)))
    if all(list(names("the warning", str(warning), *numbers)) for warning in observation.warnings):
        expected = f"expected one that names {numbers[0]} microbatches, {numbers[1]} stages and {numbers[2]}%"
        told = "; ".join(map(str, observation.warnings)) or "none at all"
        judge.fail([f"warnings: {expected}, saw {told}"])


@pytest.mark.clause("ERR-1", applies=distributed)
def test_large_meshes_are_refused(case, observation, judge):
    """A mesh larger than the machine MUST be refused with an error that names both device counts."""
    what = f"a mesh of {case.devices} devices on {case.devices - 1}"
    judge.clear(refused(case, what, judge.see(observation.refusals.small_machine), case.devices, case.devices - 1))


def is_padded(case, observation, judge):
    """Whether a batch that does not divide was padded as it may be; fails where it was masked, and wrongly."""
    if judge.see(observation.refusals.uneven_batch) or not case.contract.mask:
        return False
    judge.clear(f"a padded batch: {problem}" for problem in [judge.see(observation.refusals.padding)] if problem)
    return True


def refused(case, what, message, *numbers):
    """A sentence if something was not refused, or without these numbers by who could name them."""
    if not (message and own_judge(case)):
        yield from names(what, message, *numbers)


def names(what, message, *numbers):
    """A sentence if a message does not name these numbers; an empty message means that nothing was refused."""
    expected = f"{what}: expected an error that names {' and '.join(map(str, numbers))}"
    if not message:
        yield f"{expected}, saw none: it was accepted"
        return
    missing = [number for number in numbers if not re.search(rf"(?<!\d){number}(?!\d)", message)]
    if missing:
        yield f"{expected}, saw one without {' and '.join(map(str, missing))}: {message!r}"
