"""Which arrays of a state are parameters and which are optimizer state, where a trainer does not say: by their paths.

An optimizer keeps moments whose paths end as those of the parameters do: ``opt_state/0/mu/hidden/kernel`` and
``params/hidden/kernel``. What lies beside them is the optimizer's too, such as its step counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshproof.observing.state import bits

MOMENTS = {"mu", "nu", "trace", "momentum", "velocity", "m", "v", "v_row", "v_col", "moments", "acc_grads"}
MOMENTS |= {"adam_mu", "adam_nu", "adam_m", "adam_v", "exp_avg", "exp_avg_sq"}
OPTIMIZERS = {"opt_state", "optimizer", "optimizer_state", "opt", "optim", "optimizer_states"}
PARAMETERS = ("params", "parameters", "weights", "model", "network")
OTHERS = {"ema", "ema_params", "params_ema", "average", "averages", "averaged", "target", "target_params"}
OTHERS |= {"batch_stats", "rngs"}


@dataclass(frozen=True)
class Parts:
    """``parameters`` is the path below which they are, ``without`` the patterns of what there is none of them.

    ``optimizer_state`` are the paths of its trees and arrays by name; ``others`` those of all other arrays of more than
    one element.
    """

    parameters: str
    without: tuple[str, ...]
    optimizer_state: dict[str, str]
    others: dict[str, str]


def find_parts(shapes: Mapping[str, tuple[int, ...]], not_parameters: frozenset[str] = frozenset()) -> Parts:
    """The parts of a state with arrays of these shapes by path; ``not_parameters`` are known to be none.

    Raises ``LookupError`` where no array can be a parameter.
    """
    moments = _moments(shapes)
    owned = {path for path in shapes if OPTIMIZERS & set(path.split("/")[:-1])} | set(moments)
    suffixes = {suffix for _, suffix in moments.values()}
    copies = {path for path in shapes if _is_copy(path, suffixes)}
    free = {path: shape for path, shape in shapes.items() if path not in owned | copies}
    root = _root(free, suffixes, not_parameters)
    prefix = f"{root}/" if root else ""
    below = {path for path in free if path.startswith(prefix)}
    parameters = {path.removeprefix(prefix) for path in below - not_parameters}
    if not parameters:
        raise LookupError(
            f"no array of the state can be a parameter; give the trainer parameters(state), which picks them out as "
            f"nested dicts, and load(parameters), which makes a state of them: it has {len(shapes)}, as "
            f"{', '.join(sorted(shapes)[:3])}"
        )
    tops = {path.split("/")[0] for path in moments} - {path.split("/")[0] for path in below}
    owned |= {path for path in shapes if path.split("/")[0] in tops}
    trees = sorted({_tree(path, shapes, prefix, parameters) for path in owned if path not in below})
    others = sorted(path for path in shapes if path not in owned | below - not_parameters and shapes[path])
    rest = {path.removeprefix(prefix) for path in shapes if path.startswith(prefix)} - parameters
    return Parts(root, _without(rest, parameters), _named(trees), {path.replace("/", "_"): path for path in others})


def _is_copy(path: str, suffixes: set[str]) -> bool:
    """Whether it has the name of what is averaged, or kept beside the parameters, and no moment knows it by that."""
    words = path.split("/")
    return any(
        word in OTHERS and not any("/".join(words[start:]) in suffixes for start in range(at + 1))
        for at, word in enumerate(words)
    )


def _without(rest: set[str], parameters: set[str]) -> tuple[str, ...]:
    """The fewest glob patterns that match these paths and no parameter: of whole trees where they may be."""

    def pattern(path: str) -> str:
        words = path.split("/")
        trees = ("/".join(words[:count]) + "/" for count in range(1, len(words)))
        free = (tree for tree in trees if not any(name.startswith(tree) for name in parameters))
        return next((f"{tree}*" for tree in free), path)

    return tuple(sorted({pattern(path) for path in rest}))


def _moments(paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Those in a moment, before and after its word. A layer may have such a name too, as ``attention/v``: there are
    moments of that layer, or others beside it hold the same, as ``attention/q`` and ``attention/k`` do."""
    found = {path: split for path in paths if (split := _of_moment(path))}
    suffixes = {suffix for _, suffix in found.values()}
    found = {
        path: (head, suffix)
        for path, (head, suffix) in found.items()
        if not any(len(other) > len(suffix) and path.endswith(f"/{other}") for other in suffixes)
    }
    trees: dict[str, set[str]] = {}
    for head, suffix in found.values():
        trees.setdefault(head, set()).add(suffix)
    free = [path for path in paths if path not in found]
    layers = {head for head, tree in trees.items() if _is_layer(head, _roots(free, tree))}
    return {path: split for path, split in found.items() if split[0] not in layers}


def _is_layer(head: str, roots: list[str]) -> bool:
    """Whether two or more of the trees that this may be a moment of lie beside it."""
    most, parent = max(map(roots.count, roots), default=0), head.rpartition("/")[0]
    beside = [root for root in set(roots) if root.rpartition("/")[0] == parent and roots.count(root) == most]
    return bool(parent) and len(beside) > 1


def _roots(free: Iterable[str], suffixes: set[str]) -> list[str]:
    """The paths below which arrays have these paths, each as often as there are such arrays."""
    return [
        path.removesuffix(suffix).rstrip("/")
        for path in free
        for suffix in suffixes
        if path == suffix or path.endswith(f"/{suffix}")
    ]


def _of_moment(path: str) -> tuple[str, str] | None:
    """A path before and after the word of a moment, if there is one and something after it."""
    words = path.split("/")
    for at, word in enumerate(words[:-1]):
        if word in MOMENTS:
            return "/".join(words[: at + 1]), "/".join(words[at + 1 :])
    return None


def _root(free: Mapping[str, Any], suffixes: set[str], not_parameters: frozenset[str]) -> str:
    """The path below which the parameters are: where most of what has moments is, or by its name, or the first."""
    if roots := _roots(free, suffixes):
        return max(sorted(set(roots)), key=roots.count)
    for name in PARAMETERS:
        for path in free:
            words = path.split("/")
            if name in words[:-1]:
                return "/".join(words[: words.index(name) + 1])
    own = {path: shape for path, shape in free.items() if path not in not_parameters and "/" in path}
    tops = list(dict.fromkeys(path.split("/")[0] for path in own))
    return tops[0] if tops and tops[0].isdecimal() and not _are_layers(own, tops) else ""


def _are_layers(free: Mapping[str, Any], tops: list[str]) -> bool:
    """Whether what a list holds are layers, and no copies: the same names in each, and not the same shapes."""
    trees: dict[str, dict[str, Any]] = {top: {} for top in tops}
    for path, shape in free.items():
        top, _, name = path.partition("/")
        trees[top][name] = shape
    one, *others = trees.values()
    return all(tree.keys() == one.keys() for tree in others) and any(tree != one for tree in others)


def _tree(path: str, shapes: Mapping[str, tuple[int, ...]], prefix: str, parameters: set[str]) -> str:
    """The path of the optimizer's tree that an array is in: that of the parameters' shape, or the array's own. A number
    is of no parameter but a number, though it may have the name of one, as Adam's ``b1``."""
    fitting = [
        name for name in parameters if path.endswith(f"/{name}") and (shapes[path] or not shapes[f"{prefix}{name}"])
    ]
    return path.removesuffix(f"/{max(fitting, key=len)}") if fitting else path


def _named(paths: list[str]) -> dict[str, str]:
    """These paths by their last word, or by as many as tell them apart."""
    named: dict[str, str] = {}
    for path in paths:
        words = [word for word in path.split("/") if not word.isdecimal()] or path.split("/")
        count = 1
        while (name := "_".join(words[-count:])) in named and count < len(words):
            count += 1
        while name in named:
            name += "_"
        named[name] = path
    return named


def stacked_copies(found: Mapping[str, Any], devices: int) -> frozenset[str]:
    """The paths of arrays (devices, …) whose slices are copies, one on each device, as ``pmap`` keeps a state: none
    unless all arrays are stacked so."""

    def is_stacked(array: Any) -> bool:
        own = (1, *array.shape[1:])
        return bool(array.shape) and array.shape[0] == devices and array.sharding.shard_shape(array.shape) == own

    if devices == 1 or not all(map(is_stacked, found.values())):
        return frozenset()
    hosts = {path: np.asarray(bits(array)) for path, array in found.items()}
    return frozenset(path for path, host in hosts.items() if (host == host[:1]).all())
