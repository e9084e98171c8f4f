"""What cannot be laid out is refused in words, with both numbers."""

import re
from math import prod

import pytest

from meshproof.measures.pipeline_schedules import count

from .applicability import distributed, has_device_dimension, mesh_axes, pipelined, starved


def splits_examples(case):
    """Several devices have examples of their own, or the contract leaves it open."""
    specs = case.contract.batch
    return distributed(case) and (specs is None or any(parts(case, spec) > 1 for spec in specs.values()))


def parts(case, spec):
    """In how many parts the examples of a field come."""
    return prod(case.mesh[axis] for axis in mesh_axes(spec[:1]))


@pytest.mark.clause("ERR-1", applies=splits_examples)
def test_uneven_batches_are_refused(case, observation, judge):
    """A batch that does not divide MUST be refused with an error that names its size and the axis size."""
    judge.promised(case.contract.batch, "layout of the batch")
    message = judge.see(observation.batch_error)
    size = len(next(iter(next(iter(case.strategy.batches(1))).values()))) - 1
    judge.clear(names(message, size, *{parts(case, spec) for spec in case.contract.batch.values()} - {1}))


@pytest.mark.clause("ERR-1", applies=has_device_dimension)
def test_batches_without_device_dimension_are_refused(case, observation, judge):
    """A batch without its device dimension (pmap) MUST be refused with an error that names its size and the number of
    devices, also where the two are equal."""
    for size, message in judge.see(observation.dimension_errors).items():
        judge.clear(names(message, size, case.devices))


@pytest.mark.clause("ERR-1", applies=pipelined)
def test_uneven_microbatches_are_refused(case, observation, judge):
    """A batch that does not divide into microbatches MUST be refused with an error that names both numbers."""
    message = judge.see(observation.batch_error)
    size = len(next(iter(next(iter(case.strategy.batches(1))).values()))) - 1
    judge.clear(names(message, size, count(case.strategy.schedule).microbatches))


@pytest.mark.clause("ERR-1", applies=starved)
def test_too_few_microbatches_are_warned_of(case, observation, judge):
    """Fewer microbatches than stages MUST raise a warning that names both counts, and the efficiency in percent."""
    counts = count(case.strategy.schedule)
    numbers = (counts.microbatches, counts.stages, round(100 * (1 - counts.bubble)))
    if all(list(names(str(warning), *numbers)) for warning in observation.warnings):
        expected = f"expected is one that names {numbers[0]} microbatches, {numbers[1]} stages and {numbers[2]}%"
        told = [*map(str, observation.warnings)]
        judge.fail([f"no such warning among the {len(told)} seen, {told}; {expected}"])


@pytest.mark.clause("ERR-1", applies=distributed)
def test_large_meshes_are_refused(case, observation, judge):
    """A mesh larger than the machine MUST be refused with an error that names both device counts."""
    judge.clear(names(judge.see(observation.mesh_error), case.devices, case.devices - 1))


def names(message, *numbers):
    """What a message fails to say."""
    if not message:
        yield f"it was not refused, no error was raised; expected an error that names {' and '.join(map(str, numbers))}"
        return
    missing = [number for number in numbers if not re.search(rf"(?<!\d){number}(?!\d)", message)]
    if missing:
        yield f"the error does not name {' and '.join(map(str, missing))}: {message!r}"
