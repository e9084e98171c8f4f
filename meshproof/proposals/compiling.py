"""Has an implementation build what a plan proposes, and a compiler compile its train step: what that program holds."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

import jax

from meshproof.cases import Case, case_id, import_problem
from meshproof.contract import Proposal, leaves
from meshproof.hlo import census
from meshproof.hlo.arrays import held_arrays
from meshproof.hlo.tiles import arguments
from meshproof.measures.layout import LeafLayout, observe_layout
from meshproof.measures.memory import laid_out_bytes
from meshproof.measures.traffic import Traffic, compare_traffic
from meshproof.observing.compile_only import AbstractSubject
from meshproof.observing.compilers import Compiler, CompilerError, default_devices
from meshproof.observing.programs import stage
from meshproof.targets import read_target

HALVES = {"bf16", "f16"}
SCATTERED = ("reduce-scatter", "fusion all-reduce-scatter")
"""How a reduce-scatter is written of which a device gets its part alone, and never the whole sum."""
EXHAUSTED = "RESOURCE_EXHAUSTED"
"""How XLA begins to say that a program needs more memory than a device has."""


class ProposalError(ValueError):
    """Nothing could be compiled; the message says why, and what to do."""


class ExhaustedError(ProposalError):
    """The compiler itself says that the program does not fit the memory of the chip."""


def compile_first(implementation: str, target: str, proposals: Sequence[dict[str, Any]], cache: str) -> dict[str, Any]:
    """What a compiler makes of the first of these proposals that the implementation realises.

    Bytes are per device. Raises `ProposalError` where it realises none, or where its program cannot be made.
    """
    try:
        module = importlib.import_module(implementation)
    except Exception as error:
        raise ProposalError(f"--impl {implementation}: {import_problem(implementation, error)}") from error
    if not callable(getattr(module, "proposed", None)):
        raise ProposalError(
            f"--impl {implementation}: it has no proposed(proposal), which builds a strategy of other sizes; see "
            f"meshproof.contract.Proposal. `meshproof check --impl {implementation} --target {target}` compiles the "
            f"strategies that it has"
        )
    refused = dict[str, str]()
    for number, given in enumerate(proposals):
        try:
            strategy = module.proposed(Proposal(**given))
        except (LookupError, ValueError) as error:
            refused[given["strategy"]] = str(error.args[0] if error.args else error)
            continue
        if not isinstance(getattr(strategy, "mesh_axes", None), Mapping):
            raise ProposalError(
                f"--impl {implementation}: proposed({given['strategy']}) returned {type(strategy).__name__}, expected "
                f"a strategy with mesh_axes; raise LookupError for what it does not have"
            )
        return compiled(strategy, target, Path(cache)) | {"number": number, "refused": refused}
    named = {reason: [name for name in refused if refused[name] == reason] for reason in refused.values()}
    reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in named.items())
    if len(named) == 1:
        reasons = f"{next(iter(named))} (the same of each: {', '.join(refused)})"
    raise ProposalError(f"--impl {implementation} realises nothing of what fits: {reasons}")


def compiled(strategy: Any, target: str, cache: Path) -> dict[str, Any]:
    """What a target's compiler makes of a strategy's train step, and of what its arguments are."""
    try:
        compiler = Compiler(read_target(target), cache)
        with jax.default_matmul_precision("float32"), default_devices(compiler.devices):
            mesh = dict(strategy.mesh_axes)
            subject = AbstractSubject(Case(case_id(strategy, target), strategy, mesh, target), compiler)
            lowered = stage(subject.strategy.train_step.lower(subject.state, subject.batches[0]), "lowered")
            made = compiler.compile(lowered, subject.strategy.mesh).program
            return facts(subject, made)
    except CompilerError as error:
        raise ProposalError(f"{error}; --target names another one") from error
    except Exception as error:
        if EXHAUSTED in str(error):
            raise ExhaustedError(f"{case_id(strategy, target)}: it does not fit: {first_line(error)}") from error
        raise ProposalError(f"{case_id(strategy, target)}: {type(error).__name__}: {error}") from error


def first_line(error: Exception) -> str:
    """What an error says at first."""
    return str(error).partition("\n")[0]


def facts(subject: AbstractSubject, made: Any) -> dict[str, Any]:
    """Memory, arguments by leaf, and the census beside the contract's budget, as data. Raises what reading raises."""
    if made.memory is None:
        raise LookupError("the compiler tells no memory")
    case, mesh = subject.case, subject.strategy.mesh
    parts = {
        "parameters": subject.tree("parameters", subject.state),
        "optimizer state": subject.tree("optimizer_state", subject.state),
        "batch": dict(subject.batches[0]),
    }
    held = [
        (part, leaf) for part, tree in parts.items() for leaf in observe_layout(dict(leaves(tree)), mesh, declared=None)
    ]
    taken = laid_out_bytes([leaf for _, leaf in held], arguments(made.text))
    return {
        "case": case.id,
        "target": case.target,
        "seconds": made.seconds,
        "memory": asdict(made.memory),
        "leaves": [described(part, leaf, size) for (part, leaf), size in zip(held, taken, strict=True)],
        "arrays": list(made_arrays(made.text, held)),
        "lanes": [lane(each) for each in traffic(case, made.text)],
    }


def made_arrays(text: str, held: Sequence[tuple[str, LeafLayout]]) -> Iterator[dict[str, Any]]:
    """The arrays of one device that a program makes, each shape once: but for those that it is given."""
    given = {shard.shape for _, leaf in held for shard in leaf.shards}
    for shape in held_arrays(text):
        if shape.dimensions not in given:
            yield {"dtype": shape.dtype, "shape": list(shape.dimensions), "bytes": shape.bytes}


def traffic(case: Case, text: str) -> tuple[Traffic, ...]:
    """The census beside the budget, as the suites compare them for targets that only compile."""
    seen = [
        replace(entry, widened=0, derived=entry.derived or not case.contract.explicit) if case.compiles_only else entry
        for entry in census(text, case.mesh)
    ]
    moved = {"bf16" for line in case.contract.step or () if line.dtype == "bfloat16"}
    return compare_traffic(seen, case.contract.step or (), HALVES & moved)


def described(part: str, leaf: LeafLayout, taken: int) -> dict[str, Any]:
    """One argument: its elements in all, and bytes on the fullest device, as they are and as the program has them."""
    return {
        "part": part,
        "path": leaf.path,
        "shape": list(leaf.shape),
        "dtype": leaf.dtype,
        "elements": prod(leaf.shape),
        "itemsize": leaf.itemsize,
        "bytes": leaf.bytes_per_device,
        "taken": taken,
        "spec": leaf.placed,
    }


def lane(traffic: Traffic) -> dict[str, Any]:
    """What one operation moves over some axes: bytes in the program, and in the strategy's own budget.

    ``scattered`` are those that count as all-reduced, and that the program only reduce-scatters.
    """
    summed = traffic.entries if traffic.lane[0] == "all-reduce" else ()
    return {
        "operation": traffic.lane[0],
        "axes": list(traffic.lane[1]),
        "payloads": sorted({line.payload for line in traffic.lines}),
        "budget": traffic.budgeted,
        "census": traffic.seen,
        "scattered": sum(entry.bytes or 0 for entry in summed if entry.realized_as.startswith(SCATTERED)),
        "written": sorted({entry.realized_as for entry in traffic.entries}),
    }
