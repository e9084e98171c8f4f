"""FSDP exists to save memory."""

import pytest

from meshproof.cases import has_member

from .applicability import both, moves, pipelined, splits_not, unless
from .twins import needs_size, shapes


def peak(program, judge):
    """Bytes per device that a program needs at once: arguments, temporaries, and outputs that alias no argument."""
    memory = judge.see(program.memory)
    return memory.arguments + memory.temporary + memory.outputs - memory.aliased


def is_data_parallel_twin(case, other):
    """The same model on as many devices, with parameters and optimizer state replicated."""
    same = all(
        getattr(case.strategy, name, "") == getattr(other.strategy, name, "")
        for name in ("framework", "model", "variant")
    )
    whole = splits_not("parameters")(other) and splits_not("optimizer_state")(other)
    return same and whole and (case.devices, case.target) == (other.devices, other.target)


def shapes_of(case, observe_also, judge):
    """Of the parameters, for two models may have one name: those of a truth are known before its case is observed.

    Where cases are compiled at real size, no truth draws its values.
    """
    if has_member(case.strategy, "truth") and not case.compiles_only:
        return sorted(shapes(case).values())
    return sorted(leaf.shape for leaf in judge.see(observe_also(case).start.layouts.parameters))


@pytest.mark.clause("MEM-4", applies=both(moves("parameters", "all-gather"), unless(pipelined)))
def test_sharding_lowers_the_peak(case, cases, observation, observe_also, judge):
    """FSDP's peak memory MUST be below that of data parallelism on as many devices.

    Not judged in a pipeline: a stage holds its own layers whole for all microbatches.
    """
    judge.budget("step")
    twins = [other for other in cases if is_data_parallel_twin(case, other)]
    expected = shapes_of(case, observe_also, judge)
    alike = (twin for twin in twins if shapes_of(twin, observe_also, judge) == expected)
    names = " and ".join(twin.id for twin in twins[:3])
    lacks = f" with parameters of these shapes, which those of {names} have not," if twins else ""
    twin = judge.counterpart(next(alike, None), f"data parallel form{lacks}")
    seen = observe_also(twin)
    own, whole = peak(observation.programs.step, judge), peak(seen.programs.step, judge)
    needs_size(case, whole, judge)
    judge.margin(own, whole)
    if own >= whole:
        judge.at_most("peak of the step", own, whole - 1, "bytes per device", f"less than that of {twin.id}")
