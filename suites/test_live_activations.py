"""What 1F1B is for."""

import pytest

from meshproof.measures.pipeline_schedules import count

from .applicability import pipelined
from .twins import share_truth


def frees_early(case):
    """A pipeline in which backwards make room for forwards."""
    return pipelined(case) and not count(case.strategy.schedule).drains_first


def is_gpipe_twin(case, other):
    """The same model in the same stages and microbatches, with all forwards before all backwards."""
    same = share_truth(case, other) and getattr(case.strategy, "variant", "") == getattr(other.strategy, "variant", "")
    if not same or not pipelined(other):
        return False
    own, counts = count(case.strategy.schedule), count(other.strategy.schedule)
    return counts.drains_first and counts.microbatches == own.microbatches


@pytest.mark.clause("MEM-5", applies=frees_early)
def test_live_activations(case, cases, observation, observe_also, judge):
    """1F1B MUST hold at most S microbatches' activations where GPipe holds M, counted from the schedules; and its step
    MUST take as much less of temporary memory, to the nearest activation, as a stage then holds less of what it is
    handed, or, where several chunks a stage make it hold more, no more than that."""
    twins = [other for other in cases if is_gpipe_twin(case, other)]
    twin = judge.promised(twins[0] if twins else None, "GPipe form to compare with")
    own, whole = count(case.strategy.schedule), count(twin.strategy.schedule)
    if own.chunks == 1:
        judge.at_most("activations live at once", own.live, own.stages, "activations", "theory: one for each stage")
    source = f"theory: one for each microbatch of {twin.id}"
    judge.equal("activations live at once in GPipe", whole.live, whole.microbatches, "activations", source)
    step, other = judge.see(observation.step), judge.see(observe_also(twin).step)
    activation = bytes_handed_on(step, judge)
    saved = (judge.see(other.memory).temporary - judge.see(step.memory).temporary) / activation
    spared = whole.held - own.held
    judge.margin(max(spared - 0.5, 0.0), max(saved, 0.0))
    if round(saved) < spared:
        less = f"temporary memory: {saved:.2f} activations of {activation:,.0f} bytes less than {twin.id} seen"
        theory = (
            f"theory: a stage holds, or is being handed, {own.held} activations and gradients instead of {whole.held}"
        )
        judge.measured([f"{less}, at least {spared} allowed, margin {judge.record.margin:.3g}; {theory}"])


def bytes_handed_on(step, judge):
    """Bytes of one activation, from what goes from stage to stage."""
    hops = [entry for entry in judge.see(step.collectives) if entry.operation == "collective-permute"]
    if not hops or any(entry.executions is None for entry in hops):
        judge.fail([f"the size of an activation cannot be told from the collective-permutes of the step: {hops}"])
    return sum(entry.bytes for entry in hops) / sum(entry.executions for entry in hops)
