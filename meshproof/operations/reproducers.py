"""A failure of an operation as a script of at most fifteen lines of nothing but JAX, fit for an issue upstream."""

from __future__ import annotations

import ast
import dis
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from meshproof.files import replace_text
from meshproof.operations import Operation
from meshproof.operations.layouts import AXES, Layout, spelled
from meshproof.operations.observing import OperationSeen, Point
from meshproof.operations.programs import cotangent_of, operands_of

IMPORTED = ("jax", "jnp", "lax", "np", "AxisType", "Mesh", "NamedSharding", "P")
"""Names that a script has."""

OWN = ("mesh", "f", "given", "ct", "run", "one", "placed", "saw")
"""Names that a script gives."""

ONE = 'Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))'
"""The mesh of one device."""


HEAD = (
    'import os; os.environ["JAX_NUM_CPU_DEVICES"], os.environ["JAX_PLATFORMS"] = "8", "cpu"',
    "import jax, jax.numpy as jnp, numpy as np",
    "from jax import lax",
    "from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P",
)
"""How a script begins."""


LIMIT = 120.0
"""Seconds that a script may take."""

RAISED = re.compile(r"[\w.]+(Error|Exception)\b")
"""How the line of a traceback begins that says what was raised; that of an array goes on for lines."""


class NoSourceError(ValueError):
    """The source of an operation cannot be told."""


def write_reproducer(operation: Operation, seen: OperationSeen, folder: Path) -> Iterator[str]:
    """Write the script of the first layout that is wrong or broken. Yields its path, or why there is none in words: a
    script that was run and does not fail so is removed."""
    point = next((point for point in seen.points if point.fate in ("wrong", "broken")), None)
    if point is None:
        return
    try:
        text = script(operation, seen, point)
    except NoSourceError as error:
        yield f"none of {operation.name} ({error})"
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{operation.name}.py"
    replace_text(path, text)
    if why := unlike(point, path):
        path.unlink()
        yield f"none of {operation.name} ({why})"
        return
    yield str(path)


def unlike(point: Point, path: Path) -> str:
    """Why a script, run, does not show what is wrong at a point; empty where it does."""
    try:
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"its script takes over {LIMIT:g} s"
    if not done.returncode:
        return "alone it gives what one device gives: its own judge alone tells, or what it does before"
    said = [line for line in done.stderr.splitlines() if RAISED.match(line)][-1:] or [done.stderr[-200:]]
    raised = said[0].partition(":")[0]
    expected = point.detail if point.fate == "broken" else "AssertionError"
    if raised.rpartition(".")[2] not in expected:
        return f"its script says {said[0][:200]}; let it use jax, jnp, lax, np, and functions of its own file"
    return ""


def script(operation: Operation, seen: OperationSeen, point: Point) -> str:
    """A script that fails where the suite did. Raises `NoSourceError`."""
    layout = seen.layouts[point.layout]
    names = [f"x{place}" for place in range(len(operation.operands))]
    both = bool(operation.differentiated) and (point.direction == "gradient" or point.fate == "wrong")
    lines = [
        *HEAD,
        mesh_line(layout.mesh, layout.axis_type),
        *source_lines(operation.function),
        f"given = [{', '.join(map(literal, operands_of(operation, point.run)))}]",
        *program_lines(operation, seen, point, layout, names, both),
        f"with jax.set_mesh({ONE}): one = jax.tree.leaves(jax.jit(run, static_argnums=0)(False, *given))",
        f"placed = [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(given, [{specs(layout)}])]",
        "with jax.set_mesh(mesh): saw = jax.tree.leaves(jax.jit(run, static_argnums=0)(True, *placed))",
        f"for s, o in ((s, o) for array, o in zip(saw, one) for s in array.addressable_shards): {check(operation)}",
    ]
    return "\n".join([*lines, ""])


def mesh_line(shape: tuple[int, ...], axis_type: str) -> str:
    """The mesh, in Python."""
    kinds = f"axis_types=(AxisType.{axis_type},) * {len(shape)}"
    return f"mesh = Mesh(np.array(jax.devices()).reshape({shape}), {AXES[: len(shape)]}, {kinds})"


def specs(layout: Layout) -> str:
    """The specs of the operands, in Python."""
    return ", ".join(map(spelled, layout.specs))


def program_lines(
    operation: Operation, seen: OperationSeen, point: Point, layout: Layout, names: list[str], both: bool
) -> Iterator[str]:
    """The program that runs on one device, or on the mesh."""
    listed, result = ", ".join(names), f"f({', '.join(names)})"
    wanted = f"NamedSharding(mesh, {spelled(layout.result)})" if layout.result is not None else ""
    placed = f"lax.with_sharding_constraint({result}, {wanted}) if sharded else {result}" if wanted else result
    if not both:
        yield f"run = lambda sharded, {listed}: {placed}"
        return
    own = ", ".join(names[place] for place in operation.differentiated)
    cotangent = "ct.astype(y.dtype)"
    if layout.axis_type == "Explicit":
        cotangent = f"(jax.reshard({cotangent}, jax.typeof(y).sharding) if sharded else {cotangent})"
    yield f"ct = {literal(cotangent_of(point.run, seen.shape))}"
    yield f"def run(sharded, {listed}):"
    yield f"    y, pull = jax.vjp(lambda {own}: {placed}, {own}); return y, pull({cotangent})"


def check(operation: Operation) -> str:
    """The statement that fails."""
    near = "np.array_equal(s.data, np.asarray(o)[s.index])"
    if not operation.exact:
        near = "np.allclose(s.data, np.asarray(o)[s.index], 1e-2, 1e-3)"
    return f'assert {near}, f"on {{s.device}}: {{s.data}}, on one device: {{np.asarray(o)[s.index]}}"'


def literal(array: np.ndarray) -> str:
    """An array, in Python."""
    values = array.astype(np.float64).round(4) if array.dtype.kind not in "iub" else array
    flat = [int(value) if value == int(value) else value for value in values.ravel().tolist()]
    return f'jnp.array({flat}, "{array.dtype}").reshape{array.shape}'.replace(" ", "")


def source_lines(function: Callable[..., Any]) -> list[str]:
    """The operation as ``f``, with what else of its module it calls: within a function of its own where one of these
    has a name of the script's. Raises `NoSourceError`."""
    if not isinstance(function, FunctionType):
        raise NoSourceError(f"{function!r} is no function of Python")
    if held := function.__code__.co_freevars:
        raise NoSourceError(f"it closes over {', '.join(held)}; write it as a function of its file")
    known = {*IMPORTED}
    lines = [*needed_lines(function, known), *written(definition(function), "f")]
    if known.isdisjoint(OWN):
        return lines
    return ["def operation():", *(f"    {line}" for line in lines), "    return f", "f = operation()"]


def written(node: ast.Lambda | ast.FunctionDef, name: str) -> list[str]:
    """A function by that name, in one line where it only returns."""
    if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Return) and node.body[0].value:
        node = ast.Lambda(node.args, node.body[0].value)
    if isinstance(node, ast.Lambda):
        return [f"{name} = {ast.unparse(node)}"]
    node.name = name
    return ast.unparse(node).splitlines()


def needed_lines(function: FunctionType, known: set[str]) -> Iterator[str]:
    """The functions and values of its module that a function uses."""
    for name in (each.argval for each in dis.get_instructions(function) if each.opname == "LOAD_GLOBAL"):
        value = function.__globals__.get(name)
        if name in known or value is None or isinstance(value, ModuleType):
            continue
        known.add(name)
        if name == "PartitionSpec":
            yield "PartitionSpec = P"
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from needed_lines(value, known)
            yield from written(definition(value), name)


def definition(function: FunctionType) -> ast.Lambda | ast.FunctionDef:
    """A function's syntax, without its docstring and annotations. Raises `NoSourceError`."""
    try:
        tree = ast.parse(Path(inspect.getfile(function)).read_text(encoding="utf-8"))
    except (OSError, TypeError) as error:
        raise NoSourceError(f"{function.__name__}: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and is_of(node, function):
            return node
        lines = (
            [node.lineno, *(each.lineno for each in node.decorator_list)] if isinstance(node, ast.FunctionDef) else []
        )
        if isinstance(node, ast.FunctionDef) and function.__code__.co_firstlineno in lines:
            return bare(node)
    raise NoSourceError(f"{function.__name__}: no such function in {inspect.getfile(function)}")


def is_of(node: ast.Lambda, function: FunctionType) -> bool:
    """Whether a lambda is this one: its body is where the function's instructions are from."""
    found = [place for place in function.__code__.co_positions() if None not in place and place[1] and place[3]]
    first, last = min((line, column) for line, _, column, _ in found), max((line, end) for _, line, _, end in found)
    body: Any = node.body
    return (body.lineno, body.col_offset) <= first and last <= (body.end_lineno, body.end_col_offset)


def bare(definition: ast.FunctionDef) -> ast.FunctionDef:
    """A definition, and those within, without docstrings and annotations."""
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef):
            node.body, node.returns = [each for each in node.body if not is_docstring(each)], None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return definition


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is only text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
