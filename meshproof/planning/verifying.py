"""A formula beside a compiler: what a plan says of a strategy, and what a record says of the program made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshproof.planning.costs import plan_of
from meshproof.planning.layouts import Layout
from meshproof.planning.models import PlanError
from meshproof.planning.search import Question

ZERO = {
    **dict.fromkeys(("single_device", "data_parallel", "tensor_parallel", "data_tensor_parallel"), 0),
    **{"sequence_parallel": 0, "zero1": 1, "zero2": 2, "fsdp": 3, "hsdp": 3, "fsdp_tensor_parallel": 3},
}
"""The stage of ZeRO of each strategy that is compared, by its name in the book."""

BY_HAND = ("_blockwise_shard_map", "_shard_map")
"""Ends of names: the same strategy, written otherwise."""

AXES = {"replica": "replica", "data": "data", "model": "tensor"}
VARIANTS = {"remat", "bf16", "adam"}
"""Modifiers of a case that a plan can say: any other, as accumulation, is another step."""

ROUNDS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}


@dataclass(frozen=True)
class Comparison:
    """One amount of a case, in bytes of a device and step: by formula, and as the compiler has it."""

    case: str
    what: str
    formula: float
    compiler: float | None

    @property
    def ratio(self) -> float | None:
        """Compiler over formula; ``None`` where the record does not know, or the formula has nothing."""
        return self.compiler / self.formula if self.formula and self.compiler is not None else None


def verify(question: Question, report: Mapping[str, Any]) -> tuple[list[Comparison], list[str]]:
    """Every amount of every case that the question is about, and why other cases are not compared.

    The record is that of a run of the suites whose model and batch are the question's: a record does not tell them.
    """
    found: list[Comparison] = []
    remarks: list[str] = []
    for case in report["cases"]:
        layout = layout_of(case)
        if isinstance(layout, str):
            remarks.append(f"{case['id']}: {layout}")
        elif layout.devices != question.devices:
            remarks.append(f"{case['id']}: it has {layout.devices} devices, the question {question.devices}")
        elif case["memory"] is None or case["collectives"] is None:
            remarks.append(f"{case['id']}: its program could not be read")
        else:
            found += compare(question, layout, case)
    return found, remarks


def verified(question: Question, report: Mapping[str, Any]) -> dict[str, Any]:
    """The same as data. Raises `PlanError` if no case can be compared, with the reason of each."""
    found, remarks = verify(question, report)
    if not found:
        raise PlanError("--against: no case of this report can be compared: " + "; ".join(remarks or ["it has none"]))
    return {"verified": [asdict(each) | {"ratio": each.ratio} for each in found], "not_verified": remarks}


def layout_of(case: Mapping[str, Any]) -> Layout | str:
    """The layout of a case; or why there is none."""
    name, variants = case["strategy"], case["id"].partition("@")[0].split("+")[1:]
    for end in BY_HAND:
        name = name.removesuffix(end)
    if name not in ZERO:
        return f"no plan is called {name}; expected one of {', '.join(ZERO)}"
    if unknown := {*variants} - VARIANTS:
        return f"a plan knows no {', '.join(sorted(unknown))}"
    if unknown := case["mesh"].keys() - AXES:
        return f"a plan has no axis {', '.join(sorted(unknown))}"
    sizes = {AXES[axis]: size for axis, size in case["mesh"].items()}
    return Layout(ZERO[name], **sizes, recomputes="remat" in variants)


def compare(question: Question, layout: Layout, case: Mapping[str, Any]) -> Iterator[Comparison]:
    """State, what a step holds besides, and what each axis moves."""
    plan = plan_of(question.model, layout, question.batch, question.chip, question.precision)
    held, seen = plan.memory, case["memory"]
    yield Comparison(case["id"], "state", held.parameters + held.moments, seen["state"])
    besides = held.total - held.parameters - held.moments
    yield Comparison(case["id"], "temporary", besides, seen["temporary"])
    for line in plan.traffic:
        axis = next(name for name, called in AXES.items() if called == line.axis)
        moved = [each for each in case["collectives"] if each["axes"] == [axis] and each["operation"] in ROUNDS]
        known = all(each["bytes"] is not None for each in moved)
        seen = sum(ROUNDS[each["operation"]] * each["bytes"] for each in moved) if known else None
        yield Comparison(case["id"], f"moved over {axis}", line.bytes, seen)
