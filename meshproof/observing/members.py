"""What a strategy hands back, checked where it comes in: errors name what came, what was expected and what to do."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshproof.cases import has_member
from meshproof.contract import Batch, Leaves, Part, ReferenceTrajectory, Trajectory, Tree, leaves
from meshproof.measures.layout import Array
from meshproof.observing.seen import NotSupported
from meshproof.observing.state import bits


def batches_of(strategy: Any, count: int) -> list[Batch]:
    """So many batches of a strategy. Raises ``TypeError`` or ``ValueError`` where it gives others, or none."""
    if not callable(strategy.batches):
        raise TypeError(
            f"batches is {shown(strategy.batches)}, expected a function: batches(count) returns a list of so many "
            f"dicts of arrays, the same in every call"
        )
    return host_batches(strategy.batches(count), count)


def host_batches(returned: Any, count: int) -> list[Batch]:
    """The batches that ``batches(count)`` returned. Raises ``TypeError`` or ``ValueError``."""
    expected = f"expected {count} dicts of arrays by field name; return a list of them"
    if not isinstance(returned, Iterable) or isinstance(returned, Mapping):
        raise TypeError(f"batches({count}) returned {shown(returned)}, {expected}")
    batches = list(returned)
    if len(batches) != count:
        raise ValueError(f"batches({count}) returned {len(batches)}, {expected}")
    for batch in batches:
        if not isinstance(batch, Mapping):
            raise TypeError(f"batches({count}) returned {shown(batch)} as one of them, {expected}")
        sizes = {path: np.shape(field)[:1] for path, field in leaves(batch)}
        if len(set(sizes.values())) != 1 or () in sizes.values():
            raise ValueError(
                f"batches({count}) returned a batch whose fields have the leading dimensions {sizes}, expected the "
                f"global batch size in all of them; give every field one row for each example: turn "
                f"time-major ones round, or pad the shorter ones, and let the step close over what has no rows"
            )
    return batches


def check_repeated(batches: Sequence[Batch], again: Sequence[Batch]) -> None:
    """Raises ``ValueError`` where ``batches`` returned others when it was called a second time."""
    for number, (one, other) in enumerate(zip(batches, again, strict=True), start=1):
        second = dict(leaves(other))
        for path, field in leaves(one):
            if not np.array_equal(np.asarray(field), np.asarray(second.get(path))):
                raise ValueError(
                    f"batches({len(batches)}) returned another {path} in batch {number} when it was called again, "
                    f"expected the same in every call and every process; seed what draws them"
                )


def state_and_metrics(returned: Any) -> tuple[Any, Mapping[str, Any]]:
    """What ``train_step`` returned. Raises ``TypeError``."""
    match returned:
        case (state, Mapping() as metrics) if "loss" in metrics:
            return state, metrics
    raise TypeError(
        f"train_step returned {shown(returned)}, expected the next state and a dict of metrics that has a loss; "
        f"return state, {{'loss': loss}}"
    )


def loss_of(metrics: Mapping[str, Any]) -> float:
    """The loss that ``train_step`` reports. Raises ``TypeError``."""
    return scalar(metrics["loss"], "train_step's metrics['loss']")


def other_metrics(metrics: Mapping[str, Any]) -> Leaves:
    """The numbers, and arrays of numbers, that ``train_step`` reports beside the loss, by path; no random keys."""
    flat, _ = jax.tree_util.tree_flatten_with_path({name: value for name, value in metrics.items() if name != "loss"})
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.array(value)
        for path, value in flat
        if isinstance(value, Array | np.ndarray | np.generic | int | float)
        and jax.numpy.issubdtype(jax.numpy.result_type(value), np.number)
    }


def scalar(returned: Any, what: str) -> float:
    """One number. Raises ``TypeError``."""
    if np.shape(returned) != ():
        of_pmap = " (under pmap, out_axes=None returns that of one device)" if np.ndim(returned) == 1 else ""
        raise TypeError(
            f"{what} is {shown(returned)}, expected a scalar; return the mean over the global batch{of_pmap}"
        )
    return float(returned)


def canonical(returned: Any, member: str) -> Tree:
    """The canonical tree that a member returned, with the data of typed random keys. Raises ``TypeError``.

    A batch may have complex numbers, which no clause judges.
    """
    expected = "expected nested dicts with string keys and an array at every leaf"
    if not isinstance(returned, Mapping):
        of_optax = "of an optax state name the fields, as in {'mu': state[0].mu, 'nu': state[0].nu}"
        how = of_optax if isinstance(returned, tuple) else "of an NNX state take nnx.to_pure_dict(state)"
        raise TypeError(f"{member} returned {shown(returned)}, {expected}; {how}")
    for key in keys(returned):
        if "/" in str(key):
            raise TypeError(
                f"{member} has the key {key!r}, expected one without '/', which stands between the keys of a path; "
                f"nest dicts instead"
            )
    for path, leaf in leaves(returned):
        if not isinstance(leaf, Array | np.ndarray):
            how = "leave out what is no array"
            if isinstance(leaf, list | tuple):
                how = "name what it holds, as in {str(i): each for i, each in enumerate(layers)}"
            elif has_member(leaf, "unbox"):
                how = "take it out of its box, as flax.linen.meta.unbox(tree) does"
            elif not jax.tree_util.all_leaves([leaf]):
                how = "subtree(tree, '') of meshproof.adopting.trees shows any pytree as nested dicts"
            raise TypeError(f"{member} has {shown(leaf)} at {path!r}, {expected}; {how}")
        if member != "shard_batch" and jax.numpy.issubdtype(leaf.dtype, jax.numpy.complexfloating):
            parts = f"keep its real and its imaginary part as two leaves, {path}/real and {path}/imag"
            raise TypeError(f"{member} has {leaf.dtype} at {path!r}, expected real numbers; {parts}")
    return untyped(returned)


def untyped(tree: Tree) -> dict[str, Any]:
    """The same tree with the data of typed random keys: NumPy has no such dtype."""
    return {key: untyped(value) if isinstance(value, Mapping) else bits(value) for key, value in tree.items()}


def keys(tree: Mapping[Any, Any]) -> Iterator[Any]:
    """Every key of nested dicts."""
    for key, value in tree.items():
        yield key
        if isinstance(value, Mapping):
            yield from keys(value)


def no_layout(part: Part, found: Mapping[str, Any]) -> NotSupported | None:
    """The reason why leaves have no layout, if one of them is a host array."""
    for path, leaf in found.items():
        if isinstance(leaf, np.ndarray):
            shows = "" if part == "gradients" else ", or show those at rest in `at_rest`"
            what = f"{part} has {shown(leaf)} at {path!r}, which is on no device"
            return NotSupported(f"{what}: return the jax.Arrays{shows}")
    return None


def reference_trajectory(returned: Any, steps: int) -> ReferenceTrajectory:
    """What ``truth.train`` returned for as many batches. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(returned, ReferenceTrajectory):
        raise TypeError(
            f"train returned {shown(returned)}, expected a ReferenceTrajectory; "
            f"return ReferenceTrajectory(value, rounding), both of them a Trajectory"
        )
    value, rounding = with_scalars(returned.value), with_scalars(returned.rounding)
    for what, trajectory in (("value", value), ("rounding", rounding)):
        if len(trajectory.steps) != steps:
            raise ValueError(f"train returned a {what} of {len(trajectory.steps)} steps, expected {steps}, one a batch")
    true, deviations = shapes(value), shapes(rounding)
    for leaf in true | deviations:
        if true.get(leaf) != deviations.get(leaf):
            has, expected = (f"shape {each[leaf]}" if leaf in each else "none" for each in (deviations, true))
            raise ValueError(
                f"{leaf}: its rounding has {has}, its value {expected}; return a deviation of each element"
            )
    return ReferenceTrajectory(value, rounding)


def with_scalars(given: Trajectory) -> Trajectory:
    """A trajectory with plain numbers for losses. Raises ``TypeError``."""
    steps = enumerate(given.steps, 1)
    return replace(given, steps=tuple(replace(step, loss=scalar(step.loss, f"loss of step {n}")) for n, step in steps))


def shapes(trajectory: Trajectory) -> dict[str, tuple[int, ...]]:
    """The shape of every leaf of a trajectory, by its place."""
    parts = {"gradients of step 1": trajectory.gradients}
    for number, step in enumerate(trajectory.steps, 1):
        parts |= {
            f"optimizer state after step {number}": step.optimizer_state,
            f"parameters after step {number}": step.parameters,
        }
    return {f"{path} of {part}": np.shape(value) for part, held in parts.items() for path, value in held.items()}


def parameter_paths(strategy: Any, fresh: Callable[[], Any]) -> tuple[str, ...]:
    """The paths of the parameters in model order: that of the truth, or else of the strategy's own canonical tree."""
    if has_member(strategy, "truth"):
        return tuple(path for path, _ in leaves(strategy.truth.initial_parameters()))
    if has_member(strategy, "parameters"):
        return tuple(path for path, _ in leaves(canonical(strategy.parameters(fresh()), "parameters")))
    return ()


ADVICE = {
    "has been deleted": "A step donated it, and something still uses it: let init, load and single_device make new "
    "arrays in every call, keep none of a state that is handed over, and let no member but train_step donate, and that "
    "its state alone: a batch is used again.",
    "donate the same buffer twice": "Two leaves of the state are one array, as where an optimizer keeps the parameters "
    "that it began with: let init and load copy it, jax.tree.map(jnp.copy, state).",
    "is not the same on each process": "JAX sends float64 to the other processes as float32, and compares the two: "
    "hand over float32.",
}
"""What to do, by words of JAX's errors that leave it open."""

HANDED = (
    "`load` is handed nested dicts with the keys that `parameters` shows: of a list of layers {'0': …, '1': …}, which "
    "it makes a list again."
)


def told(error: Exception) -> str:
    """What was raised; and how that comes about, where JAX does not say it."""
    advice = [sentence for words, sentence in ADVICE.items() if words in str(error)]
    within = {frame.name for frame in traceback.extract_tb(error.__traceback__) if not is_own(frame.filename)}
    if isinstance(error, LookupError | TypeError | AttributeError) and "load" in within:
        advice.append(HANDED)
    return " ".join([f"{type(error).__name__}: {error}", *advice])


def is_own(file: str) -> bool:
    """Whether a file is one of those that observe, and not of a trainer."""
    return Path(file).is_relative_to(Path(__file__).parent)


def origin(error: Exception) -> str:
    """Where an error was raised: the last line of code on the way to it that is of no library of JAX."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not {"jax", "flax", "optax"} & set(Path(frame.filename).parts)]
    last = (own or frames)[-1]
    return f"{last.filename}:{last.lineno} in {last.name}"


def shown(value: Any) -> str:
    """A value in few words: its type, and its shape or the beginning of its text."""
    kind = type(value).__name__
    if has_member(value, "shape"):
        return f"a {kind} of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {kind} of {len(value)} ({', '.join(type(entry).__name__ for entry in value[:4])})"
    text = repr(value)
    return f"a {kind}, {text[:60]}{'…' if len(text) > 60 else ''}"
