"""1F1B exists to save activation memory."""

import pytest

from meshproof.measures.pipeline_schedules import count

from .applicability import pipelined
from .twins import needs_size, share_truth


def frees_early(case):
    """A pipeline whose first backward comes before its last forward."""
    return pipelined(case) and not count(case.strategy.schedule).drains_first


def is_gpipe_twin(case, other):
    """The same model, mesh and microbatches, with all forwards before all backwards."""
    same = share_truth(case, other) and getattr(case.strategy, "variant", "") == getattr(other.strategy, "variant", "")
    if not same or not pipelined(other):
        return False
    own, counts = count(case.strategy.schedule), count(other.strategy.schedule)
    return counts.drains_first and counts.microbatches == own.microbatches


@pytest.mark.clause("MEM-5", applies=frees_early)
def test_live_activations(case, cases, observation, observe_also, judge):
    """Relative to GPipe, the step's temporary memory MUST shrink by the activations that a stage no longer holds
    (rounded to whole activations). Where interleaving makes a stage hold more, it grows by no more than that. Counted
    from the schedules, a stage with one chunk holds at most S microbatches' activations; GPipe holds M."""
    twins = [other for other in cases if is_gpipe_twin(case, other)]
    twin = judge.counterpart(twins[0] if twins else None, "GPipe form")
    own, whole = count(case.strategy.schedule), count(twin.strategy.schedule)
    if own.chunks == 1:
        judge.at_most("activations live at once", own.live, own.stages, "activations", "theory: one for each stage")
    source = f"theory: one for each microbatch of {twin.id}"
    judge.equal("activations live at once in GPipe", whole.live, whole.microbatches, "activations", source)
    step, other = observation.programs.step, observe_also(twin).programs.step
    activation, held = bytes_sent(step, judge), judge.see(other.memory).temporary
    needs_size(case, held, judge)
    saved = (held - judge.see(step.memory).temporary) / activation
    fewer = whole.held - own.held
    if fewer > 0:
        judge.margin(fewer - 0.5, max(saved, 0.0))
    else:
        judge.margin(max(-saved, 0.0), 0.5 - fewer)
    if round(saved) < fewer:
        amount = f"temporary memory, in activations of {activation:,.0f} bytes"
        theory = f"theory: a stage holds or receives {own.held} activations and gradients, in {twin.id} {whole.held}"
        expected = f"at least {fewer} less" if fewer > 0 else f"at most {-fewer} more"
        seen = f"{abs(saved):.2f} {'less' if saved > 0 else 'more'}"
        judge.fail([f"{amount}: expected {expected} than {twin.id}, saw {seen}; {theory}"])


def bytes_sent(step, judge):
    """Bytes of one activation, from what is sent from stage to stage."""
    hops = [entry for entry in judge.see(step.collectives) if entry.operation == "collective-permute"]
    if not hops or any(entry.executions is None for entry in hops):
        judge.fail([f"size of an activation: expected collective-permutes of known executions, saw {hops or 'none'}"])
    return sum(entry.bytes for entry in hops) / sum(entry.executions for entry in hops)
