"""The shapes of a trainer's parameters and of its batch, of which a plan reads its sizes; nothing is computed."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import numpy as np

from meshproof.cases import Case, ImplementationError, has_member, load_cases
from meshproof.contract import leaves
from meshproof.observing.members import batches_of
from meshproof.proposals.compiling import ProposalError


def shapes_of(implementation: str, case: str | None) -> dict[str, Any]:
    """Those of the trainer's first case whose name has ``case`` in it. Raises `ProposalError`.

    It raises too where ``case`` is not given, and the implementation has several models.
    """
    try:
        cases = load_cases(implementation)
    except ImplementationError as error:
        raise ProposalError(str(error)) from error
    found = [each for each in cases if (case or "").lower() in each.id.lower()]
    if not found:
        raise ProposalError(f"--case {case}: no case of {implementation} has it in its name, such as {cases[0].id}")
    models = {each.strategy.model: each for each in reversed(found)}
    if case is None and len(models) > 1:
        raise ProposalError(
            f"--impl {implementation} has several models: expected --case with a part of a case's name, as of "
            f"{', '.join(each.id for each in reversed(models.values()))}"
        )
    try:
        return of_case(found[0]) | {"models": len(models)}
    except Exception as error:
        raise ProposalError(f"{found[0].id}: its shapes cannot be seen: {type(error).__name__}: {error}") from error


def of_case(case: Case) -> dict[str, Any]:
    """Shapes by path, and how many numbers the optimizer keeps for each parameter. Raises what the trainer raises."""
    strategy: Any = case.strategy
    if not has_member(strategy, "parameters"):
        raise LookupError("it has no parameters(state), which picks them out of a state")
    state = (
        strategy.abstract_state()
        if has_member(strategy, "abstract_state")
        else jax.eval_shape(strategy.init, jax.eval_shape(lambda: jax.random.key(0)))
    )
    parameters = {path: list(leaf.shape) for path, leaf in leaves(strategy.parameters(state))}
    [batch] = batches_of(strategy, 1)
    told = {
        "case": case.id,
        "parameters": parameters,
        "batch": {path: [list(np.shape(field)), str(np.asarray(field).dtype)] for path, field in leaves(batch)},
        "moments": None,
    }
    if has_member(strategy, "optimizer_state"):
        kept = sum(prod(leaf.shape) for _, leaf in leaves(strategy.optimizer_state(state)))
        told["moments"] = round(kept / sum(map(prod, parameters.values())))
    return told
