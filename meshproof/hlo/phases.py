"""Which phase of the step a tensor of a collective belongs to, from the named scopes in `op_name` paths.

synchronize_gradients, optimizer     the scope of that name, wherever it stands in the path
backward                             any path with a transpose(…)
forward                              the scope `forward`, also as jvp(forward)
other                                everything else: no metadata, or the path of a parameter
"""

import re

from meshproof.hlo.module import Instruction

_OP_NAME = re.compile(r'\bop_name="([^"\\]*(?:\\.[^"\\]*)*)"')
_ESCAPED = re.compile(r"\\(.)")
_WORD = re.compile(r"\w+")
_SCOPES = ("synchronize_gradients", "optimizer")


def read_paths(instruction: Instruction) -> list[str]:
    """The `op_name` paths of an instruction: one, or for a combined one `jit(step)/(a/b:c/d:…)` all of its parts."""
    match = instruction.search(_OP_NAME)
    if match is None:
        return []
    path = _ESCAPED.sub(r"\1", match[1])
    opened = 0 if path.startswith("(") else path.find("/(") + 1
    if not path.endswith(")") or not path.startswith("(", opened):
        return [path]
    common = path[:opened]
    parts, depth, begin = [], 0, opened + 1
    for at in range(opened + 1, len(path) - 1):
        character = path[at]
        if character == ":" and depth == 0:
            parts.append(common + path[begin:at])
            begin = at + 1
        depth += (character == "(") - (character == ")")
    return [*parts, common + path[begin:-1]]


def phase_of(path: str) -> str:
    """The phase an `op_name` path names."""
    words = set(_WORD.findall(path))
    for scope in _SCOPES:
        if scope in words:
            return scope
    if "transpose(" in path:
        return "backward"
    return "forward" if "forward" in words else "other"


def common_phase(paths: list[str]) -> str:
    """The phase all paths agree on, else "other"."""
    phases = {phase_of(path) for path in paths}
    return phases.pop() if len(phases) == 1 else "other"
