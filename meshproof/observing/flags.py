"""What each compiler flag does to a train step: it is compiled with all flags, and with all but one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import jax

from meshproof.cases import Case
from meshproof.observing.compile_only import AbstractSubject
from meshproof.observing.compilers import Compiler, default_devices
from meshproof.observing.programs import stage
from meshproof.observing.seen import NotSupported, no_lower
from meshproof.observing.subject import Subject
from meshproof.targets.flags import INERT, UNKNOWN


def observe_flags(case: Case, flags: Mapping[str, str], compiler: Compiler | None) -> dict[str, str] | NotSupported:
    """What is wrong with each flag: empty where the step of the case is another program without it.

    The process has none of them in its environment: an unknown one would end it.
    """
    lowered = _lowered(case, compiler)
    if isinstance(lowered, NotSupported):
        return lowered
    problems = {name: _refusal(lowered, name, value) for name, value in flags.items()}
    known = {name: _option(value) for name, value in flags.items() if not problems[name]}
    with_all = _text(lowered, known)
    for name in known:
        others = {other: value for other, value in known.items() if other != name}
        problems[name] = INERT if _text(lowered, others) == with_all else ""
    return problems


def _lowered(case: Case, compiler: Compiler | None) -> Any:
    """The train step, lowered as it is observed."""
    with jax.default_matmul_precision("float32"), ExitStack() as stack:
        if compiler is not None:
            stack.enter_context(default_devices(compiler.devices))
        subject = Subject(case) if compiler is None else AbstractSubject(case, compiler)
        step = subject.strategy.train_step
        if not hasattr(step, "lower"):
            return no_lower("train_step")
        return stage(step.lower(subject.fresh(), subject.batches[0]), "lowered")


def _refusal(lowered: Any, name: str, value: str) -> str:
    """Why the compiler does not take a flag; empty where it does."""
    try:
        _text(lowered, {name: _option(value)})
    except jax.errors.JaxRuntimeError as error:
        told = str(error).partition("\n")[0]
        return UNKNOWN if UNKNOWN in told else told
    return ""


def _option(value: str) -> str | bool:
    return {"true": True, "false": False}.get(value.lower(), value)


def _text(lowered: Any, options: Mapping[str, str | bool]) -> str:
    return str(lowered.compile(compiler_options=dict(options)).as_text())
