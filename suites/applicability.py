"""Which cases a clause applies to. If a contract leaves something open, the clause applies: *not supported*."""

from __future__ import annotations

from collections.abc import Callable

from meshproof.cases import Case, has_member
from meshproof.contract import Operation, Part, spec_axes
from meshproof.measures.pipeline_schedules import count
from meshproof.measures.traffic import between_examples

Rule = Callable[[Case], bool]


def on_one_device(case: Case) -> bool:
    """The case that the others are compared with."""
    return case.devices == 1


def distributed(case: Case) -> bool:
    """The mesh has more than one device."""
    return case.devices > 1


def compiled_only(case: Case) -> bool:
    """The target is a chip that is not here."""
    return case.compiles_only


def on_the_cpu(case: Case) -> bool:
    """Its devices are virtual ones of this CPU."""
    return case.target == "cpu"


def takes_examples_together(case: Case) -> set[tuple[str, tuple[str, ...], str]]:
    """What both budgets say that moves because a loss takes examples of several devices together."""
    return between_examples(case.contract.forward or (), case.contract.step or ())


def has_device_dimension(case: Case) -> bool:
    """Placed batches have a device dimension before that of the examples, as pmap takes them."""
    return case.contract.device_dimension


def splits(part: Part) -> Rule:
    """The contract splits a leaf of this part over an axis of more than one device, or leaves it open."""

    def rule(case: Case) -> bool:
        specs = getattr(case.contract, part)
        return distributed(case) and (
            specs is None or any(case.mesh[axis] > 1 for spec in specs.values() for axis in spec_axes(spec))
        )

    return rule


def deals_inside(case: Case) -> bool:
    """A batch enters whole, and the step splits its examples."""
    return distributed(case) and bool(case.contract.batch_in_step)


def deals(case: Case) -> bool:
    """Devices compute with examples of their own, or the contract leaves it open."""
    return splits("batch")(case) or deals_inside(case)


def splits_not(part: Part) -> Rule:
    """The contract says that every leaf of this part is replicated."""
    return lambda case: not any(any(spec) for spec in (getattr(case.contract, part) or {"": (True,)}).values())


def replica_axes(case: Case) -> set[str]:
    """The mesh axes that split batches and no parameter, if other axes split both: hybrid sharding."""
    batch, parameters = axes_of(case, "batch"), axes_of(case, "parameters")
    return {axis for axis in batch - parameters if case.mesh[axis] > 1} if batch & parameters else set()


def axes_of(case: Case, part: Part) -> set[str]:
    """Every mesh axis that the contract splits a leaf of this part over; a batch, as it is placed or in the step."""
    parts = ("batch", "batch_in_step") if part == "batch" else (part,)
    specs = (spec for each in parts for spec in (getattr(case.contract, each) or {}).values())
    return {axis for spec in specs for axis in spec_axes(spec)}


def moves(payload: str, operation: Operation | None = None) -> Rule:
    """The step's budget has a line for this payload (and operation), or is left open."""
    return lambda case: distributed(case) and (case.contract.step is None or case.contract.moves(payload, operation))


def reduces(case: Case) -> bool:
    """The budget lists gradients, or is left open, or the layouts imply that gradients move."""
    return moves("gradients")(case) or bool(data_axes(case))


def splits_layers(case: Case) -> bool:
    """A mesh axis that splits no batch splits a parameter, or the contract leaves open what is split."""
    open_ = None in (case.contract.parameters, case.contract.batch)
    return open_ or any(case.mesh[axis] > 1 for axis in axes_of(case, "parameters") - axes_of(case, "batch"))


def tensor_axes(case: Case) -> set[str]:
    """The mesh axes over which activations move, other than batch axes, to experts, and between pipeline stages."""
    elsewhere = {"all-to-all"} | ({"collective-permute"} if pipelined(case) else set())
    moved = {
        axis
        for line in case.contract.step or ()
        if line.payload == "activations" and line.operation not in elsewhere
        for axis in line.axes
    }
    return moved - axes_of(case, "batch")


def tensor_parallel(case: Case) -> bool:
    """Devices share a matrix product, so its activations move; or the budget is left open."""
    return distributed(case) and (case.contract.step is None or bool(tensor_axes(case)))


def moves_not(payload: str) -> Rule:
    """The budget has no line for this payload, or is left open."""
    return lambda case: case.contract.step is None or not case.contract.moves(payload)


def data_parallel(case: Case) -> bool:
    """Every device has the whole model and its own examples. If layouts are left open, the budget decides."""
    parts: tuple[Part, ...] = ("parameters", "optimizer_state")
    if None in (case.contract.batch, *(getattr(case.contract, part) for part in parts)):
        return moves_not("parameters")(case) and moves_not("activations")(case)
    split = {axis for part in parts for axis in axes_of(case, part) if case.mesh[axis] > 1}
    return not split and not any(any(spec[1:]) for spec in case.contract.batch.values())


def data_axes(case: Case) -> list[str]:
    """The batch axes: mesh axes that split the examples or their tokens. None if the contract leaves a layout open.

    Axes between replicas are left out: COM-7 judges what moves over them.
    """
    contract = case.contract
    if None in (contract.parameters, contract.gradients, contract.batch):
        return []
    split = axes_of(case, "batch") - replica_axes(case)
    return [axis for axis, size in case.mesh.items() if axis in split and size > 1]


def exchanges_tokens(case: Case) -> bool:
    """Activations move over a batch axis, as tokens to their experts or keys around a ring."""
    moved = {axis for line in case.contract.step or () if line.payload == "activations" for axis in line.axes}
    return not moved.isdisjoint(data_axes(case))


def accumulates(case: Case) -> bool:
    """A step accumulates gradients over several microbatches."""
    return case.contract.microbatches > 1


def brings_truth(case: Case) -> bool:
    """The numbers must be those of a truth of its own, not those of its run on one device."""
    return has_member(case.strategy, "truth")


def own_judge(case: Case) -> bool:
    """The numbers must be those of its run on one device."""
    return case.is_own_judge


def draws(case: Case) -> bool:
    """A step draws random numbers."""
    return bool(getattr(case.strategy, "draws", False))


def masks(case: Case) -> bool:
    """Batches are padded, and a mask says which examples count."""
    return case.contract.mask is not None


def keeps_auxiliary(case: Case) -> bool:
    """The state has more than parameters and optimizer state, as the strategy shows or its contract says."""
    return has_member(case.strategy, "auxiliary") or case.contract.auxiliary is not None


def rematerialises(case: Case) -> bool:
    """The backward pass recomputes activations that the forward pass did not keep."""
    return case.contract.rematerialises


def in_float32(case: Case) -> bool:
    """Products and activations are computed in float32."""
    return case.contract.compute_dtype == "float32"


def mixed(case: Case) -> bool:
    """Products and activations are computed in a narrower dtype than float32: MIX-1 judges these cases."""
    return not in_float32(case)


def stored_otherwise(case: Case) -> bool:
    """The strategy shows the arrays that are on the devices in `at_rest`, not in its canonical trees."""
    return has_member(case.strategy, "at_rest")


def pipelined(case: Case) -> bool:
    """The strategy shows the schedule of a pipeline."""
    return has_member(case.strategy, "schedule")


def starved(case: Case) -> bool:
    """A pipeline with fewer microbatches than stages."""
    if not pipelined(case):
        return False
    counts = count(case.strategy.schedule)
    return counts.microbatches < counts.stages


def unless(rule: Rule) -> Rule:
    """The opposite rule."""
    return lambda case: not rule(case)


def both(*rules: Rule) -> Rule:
    """All of these."""
    return lambda case: all(rule(case) for rule in rules)


def either(*rules: Rule) -> Rule:
    """Any of these."""
    return lambda case: any(rule(case) for rule in rules)
