"""Which cases exist: one strategy on one model on one mesh for one target, with a name that a person can type."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from traceback import extract_tb
from typing import Any

from meshproof.contract import Communication, Contract, Strategy
from meshproof.hlo.wire import span_of
from meshproof.targets import HOST

REFERENCE = "reference_impl"
"""The default implementation under test."""

REQUIRED = ("name", "framework", "model", "init", "train_step", "batches")

QUIET = "without_draws"
"""The end of the variant of a trainer without its draws."""


class ImplementationError(Exception):
    """The implementation under test cannot be used; the message names everything that is missing."""


@dataclass(frozen=True, eq=False)
class Case:
    """One strategy for one target, by its name: ``cpu``, ``native``, ``gpu:h200:8``."""

    id: str
    strategy: Strategy
    mesh: dict[str, int]
    target: str

    @cached_property
    def contract(self) -> Contract:
        """The strategy's contract, with budget axes in the mesh's order; an empty contract if it has none."""
        contract = getattr(self.strategy, "contract", None) or Contract()
        forward, step = (spelled(budget, self.mesh) for budget in (contract.forward, contract.step))
        return replace(contract, forward=forward, step=step)

    @property
    def compiles_only(self) -> bool:
        """Whether its target is a chip that is not here, for which nothing can be run."""
        return self.target not in HOST

    @cached_property
    def kept_by(self) -> tuple[Hashable, ...]:
        """What may decide how its state is written and read: its target and framework, the code that saves and
        restores it, what the contract says that the optimizer keeps and what is auxiliary, whether there are keys, and
        whether parameters and optimizer state are split. Of what a contract leaves open nothing tells: the names of
        strategy and variant stand for it."""
        strategy: Any = self.strategy
        code = (_code(strategy, member) for member in ("save", "save_async", "restore"))
        parts = (self.contract.parameters, self.contract.optimizer_state)
        names = (strategy.name, getattr(strategy, "variant", ""))
        split = (names if specs is None else any(map(any, specs.values())) for specs in parts)
        named = (self.contract.optimizer_state or {}, self.contract.auxiliary or {})
        kept = (frozenset(path.partition("/")[0] for path in specs) for specs in named)  # as mu and nu
        return self.target, strategy.framework, getattr(strategy, "draws", False), *code, *split, *kept

    @property
    def is_own_judge(self) -> bool:
        """Whether its numbers must be those of its own run on one device, for it brings no other truth."""
        return has_member(self.strategy, "single_device") and not has_member(self.strategy, "truth")

    @cached_property
    def devices(self) -> int:
        """The number of devices of its mesh."""
        return prod(self.mesh.values())


def load_cases(implementation: str, targets: Sequence[str] = ("cpu",)) -> list[Case]:
    """Every case of an implementation module, whose ``strategies()`` returns its strategies.

    Raises `ImplementationError` if the module cannot be imported, a member is missing, or two cases share an id.
    """
    try:
        module = importlib.import_module(implementation)
    except Exception as error:
        raise ImplementationError(f"--impl {implementation}: {import_problem(implementation, error)}") from error
    if not callable(getattr(module, "strategies", None)):
        raise ImplementationError(
            f"--impl {implementation}: the module has no member strategies(), "
            f"which must return the strategies to be checked; see meshproof.contract.Strategy"
        )
    try:
        strategies = module.strategies()
        if isinstance(strategies, Iterable):
            strategies = [each for strategy in strategies for each in (strategy, *quiet_form(strategy))]
    except Exception as error:
        raise ImplementationError(
            f"--impl {implementation}: strategies() raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(strategies, list):
        raise ImplementationError(
            f"--impl {implementation}: strategies() returned {strategies!r}; return a list of strategies"
        )
    _check_members(implementation, strategies)
    cases = [
        Case(case_id(strategy, target), strategy, _mesh(strategy), target)
        for target in targets
        for strategy in strategies
    ]
    _check_ids(implementation, [case.id for case in cases])
    return cases


def quiet_form(strategy: Any) -> Iterator[Any]:
    """The same trainer without its draws, where it offers that: a case of its own."""
    if has_member(strategy, "without_draws") and getattr(strategy, "draws", False):
        quiet = strategy.without_draws()
        variant = getattr(quiet, "variant", "")
        quiet.variant, quiet.draws = f"{variant}+{QUIET}" if variant else QUIET, False
        yield quiet


def import_problem(implementation: str, error: Exception) -> str:
    """Whether there is no such module, and where it was sought; or what its own import ended with, and where."""
    said = f"{type(error).__name__}: {error}"
    if implementation.endswith(".py") or not all(part.isidentifier() for part in implementation.split(".")):
        return "expected the dotted name of a module, as in my_trainer.meshproof for my_trainer/meshproof.py"
    missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    if not missing or not f"{implementation}.".startswith(f"{missing}."):
        ours = ("<", __file__, importlib.__file__)
        frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
        where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return f"the module cannot be imported: there is one, and its own code fails{where} ({said})"
    parent, _, name = missing.rpartition(".")
    if package := getattr(sys.modules.get(parent), "__path__", None):
        return f"the module cannot be imported ({said}); expected {name}.py or {name}/ in {', '.join(package)}"
    sought = [f"{folder}{' (the current folder)' * (folder == str(Path.cwd()))}" for folder in _import_folders()]
    return (
        f"the module cannot be imported ({said}); looked in {', '.join(sought)}; "
        f"run this in the folder that holds {missing.partition('.')[0]}, or name that folder in PYTHONPATH"
    )


def _import_folders() -> Iterator[str]:
    """The folders where modules of a user's own can be, in Python's order: not those of Python's library."""
    library = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    library |= {path / "lib-dynload" for path in library}
    for entry in dict.fromkeys(str(Path(entry or ".").absolute()) for entry in sys.path):
        if Path(entry).is_dir() and Path(entry) not in library and entry != sysconfig.get_path("scripts"):
            yield entry


def spelled(budget: tuple[Communication, ...] | None, mesh: Mapping[str, int]) -> tuple[Communication, ...] | None:
    """A budget as a program shows it: axes, or parts as ``data:(1)2``, in the mesh's order; none of one device."""
    if budget is None:
        return None
    real = [axis for axis, size in mesh.items() if size > 1]
    named = [
        (line, tuple(name for axis in real for name in line.axes if name.partition(":")[0] == axis)) for line in budget
    ]
    return tuple(replace(line, axes=axes) for line, axes in named if axes)


def case_id(strategy: Any, target: str = "cpu") -> str:
    """A case's id, such as ``fsdp-jax-mlp+adam@data=8``; with its target at its end, where that is not ``cpu``."""
    shape = ",".join(f"{axis}={size}" for axis, size in _mesh(strategy).items())
    variant = getattr(strategy, "variant", "")
    model = f"{strategy.model}+{variant}" if variant else strategy.model
    suffix = "" if target == "cpu" else f":{target}"
    return f"{strategy.name}-{strategy.framework}-{model}@{shape}{suffix}"


def _mesh(strategy: Any) -> dict[str, int]:
    return dict(getattr(strategy, "mesh_axes", None) or strategy.mesh.shape)


def _check_members(implementation: str, strategies: list[Any]) -> None:
    if not strategies:
        raise ImplementationError(f"--impl {implementation}: strategies() returned none; nothing would be checked")
    problems = []
    for i, strategy in enumerate(strategies):
        missing = [member for member in REQUIRED if not has_member(strategy, member)]
        if not has_member(strategy, "mesh_axes") and not has_member(strategy, "mesh"):
            missing.append("mesh")
        name = strategy.name if has_member(strategy, "name") else f"number {i}, a {type(strategy).__name__}"
        if isinstance(strategy, type):
            problems.append(f"strategy {name} is a class; return {strategy.__name__}() instead")
        elif missing:
            problems.append(f"strategy {name} lacks {', '.join(missing)}")
        else:
            problems += [f"strategy {name}: {problem}" for problem in _odd_values(strategy)]
    if problems:
        raise ImplementationError(
            f"--impl {implementation}: {'; '.join(problems)}; see meshproof.contract.Strategy for what each must be"
        )


def _odd_values(strategy: Any) -> Iterator[str]:
    """A sentence for each member of the wrong type, and for contract axes that the mesh does not have."""
    for member in ("name", "framework", "model", "variant"):
        if not isinstance(value := getattr(strategy, member, ""), str):
            yield f"{member} is {value!r}; expected a str"
    mesh = getattr(strategy, "mesh_axes", None) or strategy.mesh.shape
    if not isinstance(mesh, Mapping) or not all(isinstance(size, int) and size > 0 for size in mesh.values()):
        yield f"mesh_axes is {mesh!r}; expected a dict from axis name to size, as in {{'data': 8}}"
        return
    try:
        contract = getattr(strategy, "contract", None)
    except Exception as error:
        yield f"its contract raised {type(error).__name__}: {error}"
        return
    if contract is not None and not isinstance(contract, Contract):
        yield f"contract is {contract!r}; expected a meshproof.contract.Contract, or none at all"
        return
    if contract is None:
        return
    named = {*contract.axes()} - mesh.keys() | {axis for axis in contract.axes_of_lines() if not is_axis(axis, mesh)}
    if unknown := sorted(named):
        yield f"the contract names the axes {', '.join(unknown)}, but the axes of the mesh are {', '.join(mesh)}"


def is_axis(axis: str, mesh: Mapping[str, int]) -> bool:
    """Whether a mesh has an axis, or one of which this is a part."""
    try:
        return bool(span_of(axis, mesh))
    except (KeyError, ValueError):
        return False


def _check_ids(implementation: str, ids: list[str]) -> None:
    twice = sorted({case_id for case_id in ids if ids.count(case_id) > 1})
    if twice:
        raise ImplementationError(
            f"--impl {implementation}: two strategies share the id {', '.join(twice)}; "
            f"give one of them a `variant`, or another name, framework, model or mesh"
        )


def _code(strategy: Strategy, member: str) -> Hashable:
    """The function of a member, the same one for all strategies that share it; ``None`` where there is none. That of
    another object is its own: two may do otherwise what one function does."""
    value = getattr(strategy, member, None)
    return getattr(value, "__func__", value) if getattr(value, "__self__", None) is strategy else value


def has_member(strategy: Any, member: str) -> bool:
    """Whether a strategy has a member that is not ``None``. Not evaluated: a lazy mesh would start the JAX backend."""
    try:
        return inspect.getattr_static(strategy, member) is not None
    except AttributeError:
        with suppress(AttributeError, LookupError):  # a dict whose keys are attributes raises KeyError
            return hasattr(type(strategy), "__getattr__") and getattr(strategy, member) is not None
        return False
