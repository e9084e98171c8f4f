"""What a loop carries of the state is changed in place: a copy in each turn costs its bytes as often."""

import pytest

from .applicability import compiled_only


@pytest.mark.clause("MEM-7", applies=compiled_only)
def test_state_is_updated_in_place(observation, judge):
    """A loop of the train step MUST NOT copy a whole array of its state, as it came or as the loop has changed it. (Of
    arrays that take a hundredth of the state or more.)"""
    arrays, held = judge.see(observation.start.layouts.arrays), {}
    for leaf in arrays:
        held.setdefault(_sizes(leaf.shards[0].shape), leaf.path)
    judge.clear(
        f"{copy.name} copies {copy.shape.bytes:,} bytes of the shape {copy.shape.dimensions}, that of "
        f"{held[_sizes(copy.shape.dimensions)]}, in a loop, "
        f"{'an unknown number of' if copy.executions is None else copy.executions} times a step (line {copy.line} of "
        f"the compiled step); expected an update in place: let nothing read the array after the loop has changed it"
        for copy in judge.see(observation.programs.step.loop_copies)
        if copy.argument is not None and copy.argument < len(arrays) and _sizes(copy.shape.dimensions) in held
    )


def _sizes(shape):
    """The sizes of an array as a copy to another layout has them, too."""
    return tuple(sorted(size for size in shape if size > 1))
