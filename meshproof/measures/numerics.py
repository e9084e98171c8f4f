"""The judge of numbers: error bounds and bitwise comparison.

A leaf is judged as one vector: its error is the Frobenius norm of observed − truth, in float64. The bound is `MULTIPLE`
times the norm of the standard deviations that float32 rounding explains (`contract.ReferenceTrajectory.rounding`). For
independent errors E‖error‖² = ‖deviations‖², so a correct run stays near or below one deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf, sqrt
from typing import Any

import numpy as np

from meshproof.contract import Leaves
from meshproof.measures.causes import explain
from meshproof.measures.verdicts import Failure, LeafRecord, Verdict

MULTIPLE = 6.0
"""How many standard deviations are allowed.

A leaf of many elements averages its errors and needs hardly more than one deviation. A scalar loss is a single draw: if
normal, it exceeds six deviations once in 5·10⁸ runs. For any distribution and any correlation between the elements,
Chebyshev's inequality gives at most 1/36. A larger multiple would only hide faults: the deviations are upper estimates,
and float32 training, sequential sums included, uses about a tenth of six of them.
"""

VACUOUS = 1e-2
"""A bound above this share of the signal proves nothing, and is itself a failure (NUM-10)."""

VACUOUS_IN = {"float32": VACUOUS, "tensorfloat32": 0.1, "bfloat16": 0.5, "float16": 0.5}
"""`VACUOUS` by compute dtype. In 16 bits one ReLU in a thousand flips, so its bounds cannot be small.

The smallest wrong mean or sum is off by a factor of two, that is, by half of one of them: a larger bound could hide it.
"""

TIES = 0.01
"""The share of numbers rounded to 8 bits that rounding may decide otherwise, or one of few. (Of 127 steps, each within
1e-6 of the middle between two, it is one in four thousand.)"""

Observed = Mapping[str, Any]


def judge(
    observed: Observed,
    truth: Leaves,
    rounding: Leaves,
    part: str = "leaves",
    vacuous: float = VACUOUS,
    cancelled: Collection[str] = (),
    changes: Leaves | None = None,
    began: Leaves | None = None,
) -> Verdict:
    """Every leaf against truth, within `MULTIPLE` standard deviations of float32 rounding, in truth's order.

    ``observed`` holds arrays or scalars of any real dtype. Integer leaves must be equal; those of 8 bits, to which
    floats are rounded, may differ by 1 in a hundredth of them. A leaf that is missing, unexpected, of another shape or
    not finite fails, as does a bound that exceeds ``vacuous`` of the truth, except of the parameters in ``cancelled``
    and of their moments, or of those of their elements that it marks. Of what its last change (``changes``) has brought
    back to nearly 0, that is the signal. If both ``began`` alike, a message says how far they have come.
    Raises ``ValueError`` if truth and rounding do not have the same leaves and shapes: then the judge is broken.
    """
    if truth.keys() != rounding.keys():
        raise ValueError(f"leaves in only one of truth and its rounding: {sorted(truth.keys() ^ rounding.keys())}")
    for path, value in truth.items():
        if np.shape(value) != np.shape(rounding[path]):
            raise ValueError(f"{path}: truth has shape {np.shape(value)}, its rounding {np.shape(rounding[path])}")
    judge_leaf = within(rounding, "truth", vacuous, cancelled, changes, began)
    return pair(observed, truth, truth, part, ("the run", "truth"), judge_leaf)


def judge_loss(observed: Any, truth: float, rounding: float, part: str = "loss", vacuous: float = VACUOUS) -> Verdict:
    """A scalar against truth, as `judge` judges a leaf."""
    return judge({"loss": observed}, {"loss": np.asarray(truth)}, {"loss": np.asarray(rounding)}, part, vacuous)


def agree(
    left: Observed,
    right: Observed,
    rounding: Leaves,
    part: str = "leaves",
    names: tuple[str, str] = ("one", "other"),
    vacuous: float = VACUOUS,
    cancelled: Collection[str] = (),
) -> Verdict:
    """Two observed runs of the same mathematics against each other (NUM-8), in rounding's order.

    Each differs from their common truth with the deviation σ of ``rounding``. If the errors are independent, the
    difference has the deviation √2·σ; errors that both runs share make it smaller. (If both pass `judge`, they differ
    by at most two of its bounds, so this claim is sharper.)
    """
    both = {path: sqrt(2) * real(deviation) for path, deviation in rounding.items()}
    return pair(right, left, rounding, part, (names[1], names[0]), within(both, names[0], vacuous, cancelled))


def bitwise(
    left: Observed, right: Observed, part: str = "leaves", names: tuple[str, str] = ("one", "other")
) -> Verdict:
    """Two runs (NUM-5) or two devices' copies (NUM-6), byte for byte: equal NaNs are equal and −0 is not 0."""
    return pair(right, left, left, part, (names[1], names[0]), lambda path, a, b: same_bytes(path, a, b, names))


def finite(observed: Observed, part: str = "leaves", unreached: Observed | None = None) -> Verdict:
    """Every value must be a finite number (NUM-10). Integers are.

    But for an infinity that ``unreached`` has in the same place, as the best loss so far has before the first.
    """
    began = unreached or {}
    return Verdict(part, tuple(_finite(path, np.asarray(is_), began.get(path)) for path, is_ in observed.items()))


def _finite(path: str, values: np.ndarray, began: Any) -> LeafRecord:
    bad = ~np.isfinite(values) & ~(np.isinf(values) & (values == began))
    if not bad.any():
        return LeafRecord(path, 0.0, 0.0, float(values.size))
    return unmeasured(path, "non-finite", f"is not finite: {first(bad, values)}")


Judge = Callable[[str, np.ndarray, np.ndarray], LeafRecord]


def pair(
    observed: Observed, reference: Observed, order: Iterable[str], part: str, names: tuple[str, str], judge: Judge
) -> Verdict:
    """The verdict leaf by leaf. A leaf that one side lacks, or has in another shape, is a failed record."""
    records = []
    for path in dict.fromkeys([*order, *reference, *observed]):
        if path not in observed:
            records.append(unmeasured(path, "missing", f"is missing from {names[0]}"))
        elif path not in reference:
            records.append(unmeasured(path, "unexpected", f"is in {names[0]} and unknown to {names[1]}"))
        elif np.shape(observed[path]) != np.shape(reference[path]):
            expected, saw = np.shape(reference[path]), np.shape(observed[path])
            shapes = f"expected shape {expected} of {names[1]}, saw {saw} in {names[0]}"
            if len(expected) == len(saw) == 1 and expected < saw:
                shapes += "; what is padded to divide among devices is shown without, or padded as much on one device"
            records.append(unmeasured(path, "shape", shapes))
        else:
            records.append(judge(path, np.asarray(observed[path]), np.asarray(reference[path])))
    return Verdict(part, tuple(records))


def within(
    rounding: Leaves,
    name: str,
    vacuous: float,
    cancelled: Collection[str] = (),
    changes: Leaves | None = None,
    began: Leaves | None = None,
) -> Judge:
    """A judge of one leaf against the reference called ``name``, by the deviations in ``rounding``.

    Where rounding decides a part of a leaf, that part and the rest are two.
    """

    def judge_leaf(path: str, observed: np.ndarray, reference: np.ndarray) -> LeafRecord:
        if path not in rounding:
            return unmeasured(path, "unexpected", "has no bound")
        try:
            saw, is_, by = real(observed), real(reference), real(rounding[path])
        except (TypeError, ValueError):
            dtypes = f"expected real numbers, saw {observed.dtype} in the run and {reference.dtype} in {name}"
            return unmeasured(path, "dtype", dtypes)
        exact = np.isinf(is_) & (saw == is_) & (by == 0)  # NUM-10 judges whether it may be
        saw, is_ = (np.where(exact, 0.0, each) for each in (saw, is_))
        for values, where in ((saw, "the run"), (is_, name)):
            if not np.isfinite(values).all():
                return unmeasured(
                    path, "non-finite", f"is not finite in {where}: {first(~np.isfinite(values), values)}"
                )
        if np.shape(by) != np.shape(is_):
            raise ValueError(f"{path}: the leaf has shape {np.shape(is_)}, its rounding {np.shape(by)}")
        if is_integer(observed) and is_integer(reference) and not np.array_equal(observed, reference):
            return integers(path, observed, reference, name)
        start = real(began[path]) if began and path in began else None
        change = real(changes[path]) if changes and path in changes else None

        def judged(where: np.ndarray | bool, vacuous: float) -> LeafRecord:
            ours, true, bound = (np.where(where, each, 0.0) for each in (saw, is_, MULTIPLE * by))
            begun, added = (None if each is None else np.where(where, each, 0.0) for each in (start, change))
            error, signal = norm(ours - true), max(norm(true), 0.0 if added is None else norm(added))
            step = norm(added) if added is not None else 0.0 if begun is None else norm(true - begun)
            failure, detail = explain(ours, true, bound, error, signal, name, vacuous, begun, step)
            return LeafRecord(path, error, norm(bound), signal, failure, detail)

        noise = noise_of(path, is_.shape, cancelled)
        if noise is None or noise.all():
            return judged(True, vacuous if noise is None else inf)
        kept, rest = judged(~noise, vacuous), judged(noise, inf)
        return kept if kept.failure or not rest.failure else rest

    return judge_leaf


def noise_of(path: str, shape: tuple[int, ...], cancelled: Collection[str]) -> np.ndarray | None:
    """Which elements of a leaf are nothing but rounding: those of the parameter that its path ends with, if it is
    ``cancelled``; by name alone all of them. ``None``: of none is that known."""
    name = max((each for each in cancelled if f"/{path}".endswith(f"/{each}")), key=len, default=None)
    if name is None:
        return None
    every = np.ones(shape, bool)
    noise = np.asarray(cancelled[name]) if isinstance(cancelled, Mapping) else every
    return every if noise.all() else noise if noise.shape == shape else None


def integers(path: str, observed: np.ndarray, reference: np.ndarray, name: str) -> LeafRecord:
    """The record of whole numbers that are not equal: those of 8 bits may be rounded from floats."""
    off, signal, tied = real(observed) - real(reference), norm(real(reference)), sqrt(max(1, TIES * observed.size))
    if observed.dtype in (np.int8, np.uint8) and np.abs(off).max() == 1 and norm(off) <= tied:
        return LeafRecord(path, norm(off), tied, signal)
    seen = f"differs from {name}: {first(observed != reference, observed, reference)}; integers must be exact"
    return LeafRecord(path, norm(off), 0.0, signal, "differs", seen)


def same_bytes(path: str, observed: np.ndarray, reference: np.ndarray, names: tuple[str, str]) -> LeafRecord:
    """The record of a bitwise comparison; its error is the number of elements that differ."""
    if observed.dtype != reference.dtype:
        return unmeasured(path, "dtype", f"is {reference.dtype} in {names[0]} and {observed.dtype} in {names[1]}")
    if observed.tobytes() == reference.tobytes():
        return LeafRecord(path, 0.0, 0.0, float(observed.size))
    different = (as_bytes(observed) != as_bytes(reference)).any(-1).reshape(observed.shape)
    detail = f"differs in bits between {names[0]} and {names[1]}: {first(different, reference, observed)}"
    return LeafRecord(path, float(np.count_nonzero(different)), 0.0, float(observed.size), "differs", detail)


def first(where: np.ndarray, *arrays: np.ndarray) -> str:
    """How many elements ``where`` marks, and the first of them with its index and its value in each array."""
    index = tuple(int(i) for i in np.argwhere(where)[0])
    shown = " and ".join(repr(array[index].item()) for array in arrays)
    return f"{np.count_nonzero(where):,} of {where.size:,} elements, the first at {index} is {shown}"


def unmeasured(path: str, failure: Failure, detail: str) -> LeafRecord:
    """The record of a leaf whose error cannot be measured: it is infinite."""
    return LeafRecord(path, inf, 0.0, 0.0, failure, detail)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of every element, (elements, itemsize)."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)


def is_integer(array: np.ndarray) -> bool:
    """Whether the leaf holds integers or booleans, which are never rounded."""
    return array.dtype.kind in "iub"


def real(array: Any) -> np.ndarray:
    """The array in float64. Raises ``TypeError`` or ``ValueError`` if it holds no real numbers."""
    given = np.asarray(array)
    if given.dtype.kind == "c":
        raise TypeError(f"{given.dtype} is complex")
    return given.astype(np.float64)


def norm(array: np.ndarray) -> float:
    """The Frobenius norm in float64."""
    return float(np.linalg.norm(array.ravel()))
