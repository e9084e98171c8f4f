"""Which cases a clause applies to. What a contract leaves open applies, and is then reported *not supported*."""

from __future__ import annotations

from collections.abc import Callable

from meshproof.cases import Case, has_member
from meshproof.contract import Operation, Part, spec_axes
from meshproof.measures.pipeline_schedules import count

Rule = Callable[[Case], bool]


def on_one_device(case: Case) -> bool:
    """The yardstick: nothing is distributed."""
    return case.devices == 1


def distributed(case: Case) -> bool:
    """More than one device."""
    return case.devices > 1


def has_device_dimension(case: Case) -> bool:
    """Placed batches have a dimension of devices before that of examples."""
    return case.contract.device_dimension


def splits(part: Part) -> Rule:
    """The contract splits a leaf of this part over an axis of more than one device, or leaves it open."""

    def rule(case: Case) -> bool:
        specs = getattr(case.contract, part)
        return distributed(case) and (
            specs is None or any(case.mesh[axis] > 1 for spec in specs.values() for axis in spec_axes(spec))
        )

    return rule


def splits_not(part: Part) -> Rule:
    """The contract says that every leaf of this part is whole."""
    return lambda case: not any(any(spec) for spec in (getattr(case.contract, part) or {"": (True,)}).values())


def replica_axes(case: Case) -> set[str]:
    """The mesh axes that split batches and no parameter, where others split both."""
    batch, parameters = axes_of(case, "batch"), axes_of(case, "parameters")
    return {axis for axis in batch - parameters if case.mesh[axis] > 1} if batch & parameters else set()


def axes_of(case: Case, part: Part) -> set[str]:
    """Every mesh axis that the contract splits a leaf of this part over."""
    return {axis for spec in (getattr(case.contract, part) or {}).values() for axis in spec_axes(spec)}


def moves(payload: str, operation: Operation | None = None) -> Rule:
    """The budget has a line for this payload, or is left open."""
    return lambda case: distributed(case) and (case.contract.step is None or case.contract.moves(payload, operation))


def reduces(case: Case) -> bool:
    """Gradients move by the budget, or must by the layouts; or the budget is left open."""
    return moves("gradients")(case) or bool(data_axes(case))


def tensor_axes(case: Case) -> set[str]:
    """The mesh axes over which activations move, but those of other tokens, to experts, and from stage to stage."""
    elsewhere = {"all-to-all"} | ({"collective-permute"} if pipelined(case) else set())
    moved = {
        axis
        for line in case.contract.step or ()
        if line.payload == "activations" and line.operation not in elsewhere
        for axis in line.axes
    }
    return moved - axes_of(case, "batch")


def tensor_parallel(case: Case) -> bool:
    """Devices share a product, and so move its activations; or the budget is left open."""
    return distributed(case) and (case.contract.step is None or bool(tensor_axes(case)))


def moves_not(payload: str) -> Rule:
    """The budget has no line for this payload, or is left open."""
    return lambda case: case.contract.step is None or not case.contract.moves(payload)


def data_parallel(case: Case) -> bool:
    """Every device has the whole model and examples of its own; or the layouts are open, and so is the budget."""
    parts: tuple[Part, ...] = ("parameters", "optimizer_state")
    if None in (case.contract.batch, *(getattr(case.contract, part) for part in parts)):
        return moves_not("parameters")(case) and moves_not("activations")(case)
    split = {axis for part in parts for axis in axes_of(case, part) if case.mesh[axis] > 1}
    return not split and not any(any(spec[1:]) for spec in case.contract.batch.values())


def data_axes(case: Case) -> list[str]:
    """The mesh axes that split the examples or their tokens, where the contract says how all leaves lie.

    But for those between replicas, of which COM-7 judges what moves.
    """
    contract = case.contract
    if None in (contract.parameters, contract.gradients, contract.batch):
        return []
    split = axes_of(case, "batch") - replica_axes(case)
    return [axis for axis, size in case.mesh.items() if axis in split and size > 1]


def exchanges_tokens(case: Case) -> bool:
    """Activations move over an axis that splits the examples or their tokens, as to experts or around a ring."""
    moved = {axis for line in case.contract.step or () if line.payload == "activations" for axis in line.axes}
    return not moved.isdisjoint(data_axes(case))


def accumulates(case: Case) -> bool:
    """A step takes its batch in several parts."""
    return case.contract.microbatches > 1


def masks(case: Case) -> bool:
    """Batches are padded."""
    return case.contract.mask is not None


def rematerialises(case: Case) -> bool:
    """The backward pass computes anew what the forward pass did not keep."""
    return case.contract.rematerialises


def in_float32(case: Case) -> bool:
    """All is computed in float32."""
    return case.contract.compute_dtype == "float32"


def mixed(case: Case) -> bool:
    """Products and activations are computed in fewer digits than parameters, gradients and loss. MIX-1 judges those."""
    return not in_float32(case)


def stored_otherwise(case: Case) -> bool:
    """Canonical trees do not show where arrays lie: the strategy shows that in others."""
    return has_member(case.strategy, "at_rest")


def pipelined(case: Case) -> bool:
    """The strategy shows the schedule of a pipeline."""
    return has_member(case.strategy, "schedule")


def starved(case: Case) -> bool:
    """A pipeline of fewer microbatches than stages."""
    if not pipelined(case):
        return False
    counts = count(case.strategy.schedule)
    return counts.microbatches < counts.stages


def unless(rule: Rule) -> Rule:
    """Not this."""
    return lambda case: not rule(case)


def both(*rules: Rule) -> Rule:
    """All of these."""
    return lambda case: all(rule(case) for rule in rules)
