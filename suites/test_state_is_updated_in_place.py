"""What a loop carries of the state is changed in place: a copy in each turn costs its bytes as often."""

import pytest

from .applicability import compiled_only

MOST_NAMED = 4


@pytest.mark.clause("MEM-7", applies=compiled_only)
def test_state_is_updated_in_place(observation, judge):
    """A loop of the train step MUST NOT copy a whole array of its state, as it came or with parts that the loop has
    changed. (Of arrays that take a hundredth of the state or more. Of a whole array that a loop computes, no copy is
    followed.)"""
    arrays = judge.see(observation.start.layouts.arrays)
    judge.clear(
        f"{copy.name} copies {copy.shape.bytes:,} bytes of the shape {copy.shape.dimensions}, {held}, in a loop, "
        f"{'an unknown number of' if copy.executions is None else copy.executions} times a step (line {copy.line} of "
        f"the compiled step); expected an update in place: let nothing read the array after the loop has changed it"
        for copy in judge.see(observation.programs.step.loop_copies)
        if copy.argument is not None and copy.argument < len(arrays) and (held := held_so(copy.shape, arrays))
    )


def held_so(shape, arrays):
    """Which arrays of the state a device holds in a shape, or in its sizes in another order, as a copy to another
    layout has them; empty where there is none."""
    alike = [leaf for leaf in arrays if _sizes(leaf.shards[0].shape) == _sizes(shape.dimensions)]
    exact = [leaf for leaf in alike if (leaf.shards[0].shape, leaf.shards[0].bytes) == (shape.dimensions, shape.bytes)]
    named = [leaf.path for leaf in exact or alike]
    if len(named) > MOST_NAMED:
        named[MOST_NAMED - 1 :] = [f"{len(named) - MOST_NAMED + 1} others"]
    *first, last = named or [""]
    paths = f"{', '.join(first)} or {last}" if first else last
    if exact:
        return f"that of a shard of {paths}"
    return f"the sizes of a shard {alike[0].shards[0].shape} of {paths}" if alike else ""


def _sizes(shape):
    """The sizes of an array as a copy to another layout has them, too."""
    return tuple(sorted(size for size in shape if size > 1))
