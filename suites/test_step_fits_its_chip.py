"""Whether a step fits where it shall run, before it runs there."""

import pytest

from meshproof.targets import read_target

from .applicability import compiled_only

LARGEST = 3
"""How many of the largest arrays of the state a failure names."""


@pytest.mark.clause("MEM-8", applies=compiled_only)
def test_step_fits_its_chip(case, observation, judge):
    """The train step MUST fit the memory of the target's chip. (Its arguments, the outputs that alias none of them, and
    its temporary memory. What a host's runtime keeps for itself is not counted.)"""
    chip, memory = read_target(case.target).chip, judge.see(observation.programs.step.memory)
    terms = {
        "arguments": memory.arguments,
        "outputs that alias no argument": memory.outputs - memory.aliased,
        "temporary": memory.temporary,
    }
    held = sorted(judge.see(observation.start.layouts.arrays), key=lambda leaf: -leaf.bytes_per_device)
    largest = ", ".join(f"{leaf.path} {leaf.bytes_per_device:,}" for leaf in held[:LARGEST])
    shares = ", ".join(f"{name} {size:,}" for name, size in terms.items())
    source = f"{chip.kind} ({chip.source}); terms: {shares}; largest arrays of the state: {largest}"
    judge.at_most("the step on each device", sum(terms.values()), chip.memory, "bytes", source)
    judge.margin(sum(terms.values()), chip.memory)
