"""Finds the trainer that was named, and the members that an adapter of it needs; guesses those that it lacks."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from meshproof.adopting.adapter import PASSED_ON, Adapter, AdoptError, alone_source, attempt, quiet_source
from meshproof.adopting.parts import find_parts, stacked_copies
from meshproof.adopting.placement import mesh_of, mesh_source, place_batches
from meshproof.adopting.trees import arrays, is_nested, path_of
from meshproof.cases import has_member, import_problem
from meshproof.observing.members import shown
from meshproof.observing.state import is_variable

LEAST = (("init", "state"), ("train_step",), ("batches", "batch"))
"""What cannot be guessed: one of each."""


def adapt(target: str) -> Adapter:
    """The adapter of ``MODULE:OBJECT``, without a contract. Raises `AdoptError`."""
    module, _, attribute = target.partition(":")
    if not module or not attribute.isidentifier():
        raise AdoptError(f"{target!r}: expected MODULE:OBJECT, as in my_trainer:Trainer for a class of my_trainer.py")
    found = _import(module, attribute)
    make, trainer = attribute, found
    if not _is_trainer(found) and callable(found):
        make = f"{attribute}()"
        trainer = attempt(f"{make} of {module}", found)
    lacking = [" or ".join(names) for names in LEAST if not any(has_member(trainer, name) for name in names)]
    if lacking:
        raise AdoptError(
            f"{target} is {shown(trainer)} without {', '.join(lacking)}; expected a trainer, or a class or function "
            f"that makes one without arguments; it has {', '.join(_public(trainer)) or 'no members'}"
        )
    for name in sorted({*PASSED_ON, *chain(*LEAST)}):
        if has_member(trainer, name):  # it may be a property, whose error is the trainer's
            attempt(name, getattr, trainer, name)
    members, imports = {name: "" for name in PASSED_ON if has_member(trainer, name)}, {"import jax"}
    state = _state(trainer, members, imports)
    batch = _batches(trainer, members, imports)
    if not _takes(trainer.train_step, 2):
        raise AdoptError(
            f"train_step{inspect.signature(trainer.train_step)} cannot be called with two arguments; expected "
            f"train_step(state, batch): keep a key in the state, and all that is trained in one state"
        )
    mesh = mesh_of(trainer, members, imports, {**arrays(state), **arrays(batch)})
    if not has_member(trainer, "shard_batch"):
        place_batches(batch, members, imports)
    _parts(trainer, state, stacked_copies(arrays(state), mesh.size), members, imports)
    if "gradients" in members and not is_nested(_traced(trainer.gradients, state, batch)):
        imports.add("from meshproof.adopting.trees import subtree")
        members["gradients"] = (
            '    def gradients(self, state, batch):\n        return subtree(self.trainer.gradients(state, batch), "")'
        )
    if has_member(trainer, "single_device"):
        members["single_device"] = alone_source("self.trainer.single_device(dtype)")
    elif wanted := _count_of_devices(found):
        one = Mesh(np.array(jax.devices()[:1]).reshape((1,) * mesh.devices.ndim), mesh.axis_names)
        members["single_device"] = alone_source(
            f"{attribute}({wanted}=1)", mesh="" if has_member(trainer, "mesh") else mesh_source(one, imports)
        )
    if "without_draws" in members:
        members["without_draws"] = quiet_source("single_device" in members)
    for member in [name for name in ("draws", "logical_axes") if name in members and not getattr(trainer, name)]:
        del members[member]
    return Adapter(
        module=module,
        trainer=attribute,
        make=make,
        name=_word(trainer, "name", _snake(attribute)),
        framework=_word(trainer, "framework", _framework(state, module)),
        model=_word(trainer, "model", module.rpartition(".")[2]),
        mesh=dict(mesh.shape),
        members=members,
        imports=frozenset(imports),
        computed=_computed(trainer),
    )


def _import(module: str, attribute: str) -> Any:
    try:
        home = importlib.import_module(module)
    except Exception as error:
        raise AdoptError(f"{module}: {import_problem(module, error)}") from error
    if hasattr(home, attribute):
        return getattr(home, attribute)
    close = difflib.get_close_matches(attribute, _public(home), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(_public(home)) or 'nothing'}"
    raise AdoptError(f"{module} ({home.__file__}) has no {attribute}; {hint}")


def _public(value: Any) -> list[str]:
    return sorted(name for name in dir(value) if not name.startswith("_"))


def _is_trainer(value: Any) -> bool:
    return not isinstance(value, type) and has_member(value, "train_step")


def _takes(function: Any, count: int) -> bool:
    """Whether a function can be called with that many arguments. What has no signature is taken to."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _state(trainer: Any, members: dict[str, str], imports: set[str]) -> Any:
    """A first state; and ``init``, where the trainer has none that takes a key."""
    if has_member(trainer, "init"):
        if _takes(trainer.init, 1):
            state = attempt("init(key)", trainer.init, jax.random.key(0))
        else:
            state = attempt("init()", trainer.init)
            members["init"] = "    def init(self, key):\n        return self.trainer.init()"
    else:
        state = trainer.state() if callable(trainer.state) and not arrays(trainer.state) else trainer.state
        call = "()" if state is not trainer.state and callable(trainer.state) else ""
        imports.add("from meshproof.adopting.trees import copied")
        members["init"] = f"    def init(self, key):\n        return copied(self.trainer.state{call})"
    if not arrays(state):
        raise AdoptError(f"the state is {shown(state)}, expected a pytree of jax.Array; JAX finds none in it")
    return state


def _batches(trainer: Any, members: dict[str, str], imports: set[str]) -> Mapping[str, Any]:
    """The first batch; and ``batches``, where the trainer has no such function of a count."""
    if has_member(trainer, "batches") and callable(trainer.batches):
        made = attempt("batches(3)", trainer.batches, 3)
        first = next(iter(made), None) if isinstance(made, Iterable) else made
    elif has_member(trainer, "batches"):
        if isinstance(trainer.batches, Iterator):
            raise AdoptError(
                f"batches is {shown(trainer.batches)}, which can be gone through once; expected a list of batches, or "
                f"a function of their count that returns the same in every call"
            )
        first = next(iter(trainer.batches), None)
        imports.add("from itertools import cycle, islice")
        members["batches"] = _batches_from("islice(cycle(self.trainer.batches), count)", first, imports)
    else:
        call = "()" if callable(trainer.batch) else ""
        first = attempt("batch()", trainer.batch) if call else trainer.batch
        members["batches"] = _batches_from(f"[self.trainer.batch{call}] * count", first, imports)
    if not isinstance(first, Mapping) or not first:
        raise AdoptError(f"a batch is {shown(first)}, expected a dict of arrays by field name")
    return first


def _batches_from(given: str, first: Any, imports: set[str]) -> str:
    imports.add("import numpy as np")
    return (
        "    def batches(self, count):\n"
        f"        return [{{field: np.asarray(value) for field, value in batch.items()}} for batch in {given}]"
    )


def _traced(function: Any, *arguments: Any) -> Any:
    """What it returns, abstractly; an empty dict where it cannot be traced."""
    try:
        return jax.eval_shape(function, *arguments)
    except Exception:
        return {}


def _parts(trainer: Any, state: Any, copies: frozenset[str], members: dict[str, str], imports: set[str]) -> None:
    """``parameters``, ``optimizer_state``, ``load`` and, for what is neither, ``auxiliary``, where they are absent."""
    if has_member(trainer, "parameters") and has_member(trainer, "optimizer_state"):
        return
    shapes = {path: array.shape[path in copies :] for path, array in arrays(state).items()}
    try:
        parts = find_parts(shapes, _not_parameters(state))
    except LookupError as error:
        raise AdoptError(str(error.args[0])) from error
    imports |= {f"from meshproof.adopting.trees import {name}" for name in ("subtree", *["own_copies"] * bool(copies))}
    if not has_member(trainer, "parameters"):
        without = f", without={json.dumps(parts.without)}" if parts.without else ""
        tree = f'subtree(state, "{parts.parameters}"{without})'
        members["parameters"] = (
            f"    def parameters(self, state):\n        return {f'own_copies({tree})' if copies else tree}"
        )
        if not has_member(trainer, "load"):
            imports.add("from meshproof.adopting.trees import loaded")
            members["load"] = (
                "    def load(self, parameters):\n"
                f'        return loaded(self.init(jax.random.key(0)), "{parts.parameters}", parameters)'
            )
    if not has_member(trainer, "optimizer_state") and parts.optimizer_state:
        members["optimizer_state"] = _showing("optimizer_state", parts.optimizer_state, copies)
    held = arrays(state)
    told = {id(array) for array in _told(trainer, state)}
    others = {
        name: path
        for name, path in parts.others.items()
        if id(held[path]) not in told and (not copies or path in copies)  # a key of each device is no state of one
    }
    if not has_member(trainer, "auxiliary") and others:
        members["auxiliary"] = _showing("auxiliary", others, copies)


def _told(trainer: Any, state: Any) -> Iterator[Any]:
    """What the trainer's own members show of a state: it is none of its other arrays."""
    for member in ("parameters", "optimizer_state"):
        if has_member(trainer, member):
            yield from arrays(attempt(f"{member}(state)", getattr(trainer, member), state)).values()


def _showing(member: str, trees: Mapping[str, str], copies: frozenset[str]) -> str:
    """The source of a member that shows these trees and arrays, by name; of ``copies`` each device's own."""

    def tree(path: str) -> str:
        of = f'subtree(state, "{path}")'
        return f"own_copies({of})" if any(each == path or each.startswith(f"{path}/") for each in copies) else of

    shown = "".join(f'            "{name}": {tree(path)},\n' for name, path in trees.items())
    return f"    def {member}(self, state):\n        return {{\n{shown}        }}"


def _not_parameters(state: Any) -> frozenset[str]:
    """Arrays that cannot be trained by their type, or that NNX keeps in variables of another kind."""
    found = {path for path, array in arrays(state).items() if not jax.numpy.issubdtype(array.dtype, np.inexact)}
    flat, _ = jax.tree_util.tree_flatten_with_path(state, is_leaf=is_variable)
    for keys, variable in flat:
        if is_variable(variable) and "Param" not in {kind.__name__ for kind in type(variable).__mro__}:
            found.add(path_of(keys))
    return frozenset(found)


def _count_of_devices(found: Any) -> str:
    """The argument in which a class or function takes its number of devices, if it has one with a default."""
    try:
        parameters = inspect.signature(found).parameters if callable(found) else {}
    except ValueError:
        return ""
    names = [name for name in ("devices", "num_devices", "n_devices") if name in parameters]
    return names[0] if names and isinstance(parameters[names[0]].default, int) else ""


def _computed(trainer: Any) -> Mapping[str, PartitionSpec]:
    """How the trainer says that its parameters are computed with."""
    said = trainer.computed if has_member(trainer, "computed") else {}
    if not isinstance(said, Mapping) or not all(isinstance(spec, PartitionSpec) for spec in said.values()):
        raise AdoptError(f"computed is {shown(said)}, expected a dict of PartitionSpec by pattern of parameters' paths")
    return said


def _word(trainer: Any, member: str, guessed: str) -> str:
    value = getattr(trainer, member, None) if has_member(trainer, member) else None
    return value if isinstance(value, str) and value else guessed


def _framework(state: Any, module: str) -> str:
    """The library whose variables the state holds, or whose modules the trainer's own imports."""
    nodes = jax.tree.leaves(state, is_leaf=is_variable)
    if any(type(node).__module__.startswith("flax.nnx") for node in nodes):
        return "nnx"
    homes = [value.__name__ for value in vars(sys.modules[module]).values() if isinstance(value, ModuleType)]
    words = {"flax.linen": "linen", "equinox": "equinox", "haiku": "haiku"}
    return next((word for name, word in words.items() if name in homes), "jax")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
