"""A plan as JSON, and what is printed of it: one document, so that both say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from meshproof.planning import pipelining
from meshproof.planning.advice import BUSY, decision_path, doublings, fits_nowhere, pitfalls
from meshproof.planning.costs import Plan, activation_bytes
from meshproof.planning.layouts import BY_DATA, Layout
from meshproof.planning.models import PlanError
from meshproof.planning.search import Question, best_of, by_strategy, reckon

RANKED = 8
"""Meshes that a document ranks."""


@dataclass(frozen=True)
class Planned:
    """The answer to a question: plans of every strategy and mesh, the fastest that fits first."""

    question: Question
    plans: Sequence[Plan]

    @property
    def fits(self) -> bool:
        """Whether any plan fits."""
        return self.question.fits(self.plans[0])

    @property
    def ladder(self) -> dict[str, Plan | None]:
        """Data parallelism and the three stages of ZeRO over all devices; ``None`` if the batch does not split."""
        devices = self.question.devices
        splits = devices > 1 and self.question.examples % devices == 0
        return {
            name: best_of(self.question, Layout(zero, data=devices)) if splits else None
            for zero, name in enumerate(BY_DATA)
        }


def answer(question: Question) -> Planned:
    """Every plan, reckoned. Raises `PlanError` if no mesh splits the batch and the model."""
    return Planned(question, reckon(question))


def document(planned: Planned) -> dict[str, Any]:
    """All of it: bytes, seconds and shares, by name."""
    question, plans = planned.question, planned.plans
    fitting = [plan for plan in plans if question.fits(plan)]
    return {
        "schema": 1,
        "model": asdict(question.model),
        "hardware": {
            "chip": question.chip.name,
            "kind": question.chip.kind,
            "chips": question.chips,
            "devices": question.devices,
            "memory": question.chip.memory,
            "network_bandwidth": question.chip.network_bandwidth,
            "usable_memory": question.usable,
            "peak_flops": question.peak,
            "mfu": question.mfu,
            "linked": question.chip.linked,
            "source": question.chip.source,
        },
        "batch": question.batch,
        "precision": question.precision.name,
        "moment_bytes": question.precision.moments,
        "fits": planned.fits,
        "why_not": None if planned.fits else fits_nowhere(question, plans),
        "ladder": {name: plan and described(question, plan) for name, plan in planned.ladder.items()},
        "strategies": [described(question, plan) for plan in by_strategy(list(plans)).values()],
        "meshes": [described(question, plan) for plan in fitting[:RANKED]],
        "pipeline": pipeline(planned),
        "doublings": bought(planned) if planned.fits else {},
        "path": list(decision_path(question, plans)),
        "warnings": list(pitfalls(question, plans)),
    }


def described(question: Question, plan: Plan) -> dict[str, Any]:
    """One plan: bytes on a device, seconds of a step at least and at most, and what it waits for."""
    tokens = question.batch / plan.layout.ways / plan.layout.microbatches
    kept, recomputed = (
        activation_bytes(question.model, replace(plan.layout, recomputes=recomputes), tokens, question.precision)
        for recomputes in (False, True)
    )
    return {
        "strategy": plan.layout.name,
        "mesh": plan.layout.mesh,
        "microbatches": plan.layout.microbatches,
        "recomputes": plan.layout.recomputes,
        "fits": question.fits(plan),
        "memory": asdict(plan.memory) | {"total": plan.memory.total},
        "activations_kept": kept,
        "activations_recomputed": recomputed if question.model.is_stack else None,
        "seconds": {
            "products": plan.math,
            "communication": plan.comms,
            "least": plan.times.least,
            "most": plan.times.most,
            "step": plan.seconds,
        },
        "mfu": plan.mfu,
        "tokens_per_second": question.batch / plan.seconds,
        "bound": "compute" if plan.bound is None else f"{plan.bound.axis}, {link(plan)}",
        "products_over_communication": plan.times.ratio if plan.traffic else None,
        "pipeline_efficiency": plan.efficiency,
        "traffic": [
            {
                "axis": line.axis,
                "moves": line.moves,
                "bytes": line.bytes,
                "seconds": line.seconds,
                "over": "network" if line.way.network else "links",
                "bytes_per_second": line.way.bandwidth * line.way.axes,
            }
            for line in plan.traffic
        ],
    }


def link(plan: Plan) -> str:
    """What the axis that a plan waits for sends over."""
    return "network" if plan.bound and plan.bound.way.network else "links"


def pipeline(planned: Planned) -> dict[str, Any] | None:
    """The best pipeline's bubble, and the microbatches that it would take to be busy."""
    found = next((plan for plan in planned.plans if plan.layout.pipeline > 1), None)
    if found is None:
        return None
    stages, microbatches = found.layout.pipeline, found.layout.microbatches
    return {
        "stages": stages,
        "microbatches": microbatches,
        "bubble": pipelining.bubble(stages, microbatches),
        "microbatches_for_90_percent": pipelining.microbatches_for(stages, BUSY),
    }


def bought(planned: Planned) -> dict[str, Any]:
    """What the next doublings of batch and chips would buy: the best plan of each, and tokens a second over today's."""
    today = planned.question.batch / planned.plans[0].seconds
    found: dict[str, Any] = {}
    for name, question in doublings(planned.question).items():
        try:
            best = reckon(question)[0]
        except PlanError as error:
            found[name] = {"why_not": str(error)}
            continue
        told = described(question, best)
        found[name] = (
            told | {"speed_up": told["tokens_per_second"] / today} if told["fits"] else {"why_not": "fits nowhere"}
        )
    return found
