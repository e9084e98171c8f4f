"""Functions of Python as lines of a script that needs nothing but JAX: with all that they call, by the names there."""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import ad_checkpoint, lax

from meshproof.operations.reproducers import NoSourceError, definition
from meshproof.operations.transforms import Axis
from meshproof.operations.transforms.collectives import Named

MODULES = {"jax": jax, "lax": lax, "jnp": jnp, "np": np, "jax.checkpoint_policies": jax.checkpoint_policies}
"""What a script knows by these names."""

TAKEN = {*vars(builtins), *keyword.kwlist, "AxisType", "Mesh", "NamedSharding", "P", "composed", "expected", "given"}
TAKEN |= {"local", "mesh", "os", "run", "saw", "shard"}
"""Names that mean something else in a script."""

CONSTANTS = (bool, int, float, str, tuple, type(None))


class Sources:
    """The lines of functions, each after those that it calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}

    def spelled(self, value: Any, name: str) -> str:
        """A value as the script writes it: a function of Python by that name, once its lines are there.

        Raises `NoSourceError` where it is neither a constant, nor of JAX or NumPy, nor a function with a source.
        """
        if isinstance(value, CONSTANTS):
            return repr(value)
        own = getattr(value, "__name__", "")
        for known, module in MODULES.items():
            if value is module:
                return known
            if getattr(module, own, None) is value:
                return f"{known}.{own}"
        if value is ad_checkpoint.checkpoint_name:
            self.add(value, "checkpoint_name", ["from jax.ad_checkpoint import checkpoint_name"])
        if id(value) not in self.names:
            if not isinstance(value, FunctionType):
                raise NoSourceError(f"{name} is a {type(value).__name__}, expected a function of Python")
            name = f"{name}_{len(self.names)}" if name in {*TAKEN, *self.names.values()} else name
            self.add(value, name, [*written(Resolved(self, value).visit(definition(value)), name)])
        return self.names[id(value)]

    def add(self, value: Any, name: str, lines: Sequence[str]) -> None:
        """Write a value's lines, unless they are there."""
        if id(value) not in self.names:
            self.names[id(value)] = name
            self.lines += lines

    def body(self, function: Callable[..., Any], axis: Axis, size: int) -> str:
        """A body without its collectives' argument: each is written where it is called."""
        if not isinstance(function, FunctionType):
            raise NoSourceError(f"{function!r} is no function of Python")
        node = definition(function)
        devices = node.args.args.pop(0).arg
        node = Resolved(self, function).visit(Inlined(devices, Named(axis, size)).visit(node))
        self.add(function, "local", [*written(node, "local")])
        return "local"


class Resolved(ast.NodeTransformer):
    """A function in which each name from outside is what a script calls it."""

    def __init__(self, sources: Sources, function: FunctionType) -> None:
        self.sources = sources
        self.outside = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        self.bound = {*bound_names(definition(function))}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name that the function does not bind itself."""
        if node.id in self.bound or node.id not in self.outside:
            return node
        return expression(self.sources.spelled(self.outside[node.id], node.id))


class Inlined(ast.NodeTransformer):
    """A function in which each collective of a named axis is JAX's own."""

    def __init__(self, devices: str, named: Named) -> None:
        self.devices, self.named = devices, named

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """What is done with names."""
        chosen = self.visit(node.test)
        if isinstance(chosen, ast.Constant):
            return self.visit(node.body if chosen.value else node.orelse)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """The axis, its size, or that it is named."""
        if isinstance(node.value, ast.Name) and node.value.id == self.devices:
            return ast.Constant(getattr(self.named, node.attr))
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """The method's own expression, of these arguments."""
        method = node.func
        if not (isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name)):
            self.generic_visit(node)
            return node
        if method.value.id != self.devices:
            self.generic_visit(node)
            return node
        own = definition(getattr(Named, method.attr))
        assert isinstance(own, ast.FunctionDef) and isinstance(own.body[0], ast.Return) and own.body[0].value
        _, *parameters = (argument.arg for argument in own.args.args)
        given = [*map(self.visit, node.args), *(self.visit(each.value) for each in node.keywords)]
        replaced = Replaced(dict(zip(parameters, given, strict=True))).visit(own.body[0].value)
        return Inlined("self", self.named).visit(replaced)  # type: ignore[no-any-return]


class Replaced(ast.NodeTransformer):
    """An expression in which names are other expressions."""

    def __init__(self, by: dict[str, ast.expr]) -> None:
        self.by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """By a copy, since a tree has no part twice."""
        return expression(ast.unparse(self.by[node.id])) if node.id in self.by else node


def expression(text: str) -> ast.expr:
    """The syntax of an expression."""
    return ast.parse(text, mode="eval").body


def bound_names(node: ast.AST) -> Iterator[str]:
    """What a function binds: its parameters, what it assigns, and what it defines."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.FunctionDef) and each is not node:
            yield each.name


def written(node: Any, name: str) -> list[str]:
    """A function by that name, in as few lines as it can have."""
    if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Return) and node.body[0].value:
        node = ast.Lambda(node.args, node.body[0].value)
    if isinstance(node, ast.Lambda):
        return [f"{name} = {ast.unparse(node)}"]
    node.name = name
    return [*compact(node)]


def compact(node: ast.FunctionDef) -> Iterator[str]:
    """A definition whose simple statements share lines."""
    yield from (f"@{ast.unparse(decorator)}" for decorator in node.decorator_list)
    head = f"def {node.name}({ast.unparse(node.args)}):"
    if all(map(is_simple, node.body)):
        yield f"{head} {'; '.join(map(ast.unparse, node.body))}"
        return
    yield head
    shared: list[str] = []
    for statement in node.body:
        if is_simple(statement):
            shared.append(ast.unparse(statement))
            continue
        yield from (f"    {line}" for line in ["; ".join(shared)] if line)
        shared = []
        inner = compact(statement) if isinstance(statement, ast.FunctionDef) else ast.unparse(statement).splitlines()
        yield from (f"    {line}" for line in inner)
    yield from (f"    {line}" for line in ["; ".join(shared)] if line)


def is_simple(statement: ast.stmt) -> bool:
    """Whether it can share a line with others."""
    return not hasattr(statement, "body")


def fitted(lines: Sequence[str], longest: int) -> list[str]:
    """At most so many lines: the shortest neighbours that can share one do. Raises `NoSourceError`."""
    found = [*lines]
    while len(found) > longest:
        pairs = [place for place in range(len(found) - 1) if can_share(found[place]) and can_share(found[place + 1])]
        if not pairs:
            raise NoSourceError(f"it takes {len(found)} lines, expected at most {longest}")
        place = min(pairs, key=lambda place: len(found[place]) + len(found[place + 1]))
        found[place : place + 2] = [f"{found[place]}; {found[place + 1]}"]
    return found


def can_share(line: str) -> bool:
    """Whether a line is a simple statement."""
    return not line.startswith((" ", "@", "def ", "for ", "with "))
