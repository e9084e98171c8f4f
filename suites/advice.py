"""What usually moves the bytes that are too many: a hint behind a finding, where the amount points at a cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import prod

from meshproof.contract import HALVES, spec_axes
from meshproof.hlo import Collective
from meshproof.measures.layout import LeafLayout
from meshproof.measures.traffic import SCALARS, WIDENED, Traffic, norms_allowed
from meshproof.observing.observation import Observation

from .derived import USES

REDUCTIONS = ("all-reduce", "reduce-scatter")

TIMES = {1: "", 2: ", twice,", 3: ", three times,"}
"""How often a gradient is reduced that is that of several uses, as of a tied embedding."""

MOST = 6
"""Small parameters that are tried together."""

MANY = 24
"""Parameters of which two or three are tried together."""


UNKNOWN = (
    "in a loop that the data end, or a branch that they choose, as the truth value by which jit asks all rows "
    "whether to go on: in jax.shard_map each device loops for its own rows; or leave the budget out"
)
"""Of a number that nobody can know."""


def advised(program: str, lanes: Iterable[Traffic], observation: Observation) -> Iterator[str]:
    """A sentence for each of these lanes, which move other bytes than budgeted, with the hint if there is one."""
    wrong, parameters = list(lanes), observation.start.layouts.parameters
    leaves = parameters if isinstance(parameters, tuple) else ()
    for lane in wrong:
        collectives = getattr(observation.programs, program).collectives
        said = UNKNOWN if lane.seen is None else hint(lane, wrong, leaves, split(observation))
        said = said or in_groups(lane, collectives) or apart(lane, leaves, collectives)
        said = said or lacking(program, lane, wrong, leaves, returned(observation))
        yield f"{program}: {lane}" + (f"; {said}" if said else "")


def split(observation: Observation) -> set[str]:
    """The mesh axes that parameters or optimizer state are split over."""
    layouts = observation.start.layouts
    parts = (part for part in (layouts.parameters, layouts.optimizer_state) if isinstance(part, tuple))
    return {axis for part in parts for leaf in part for axis in spec_axes(leaf.declared or ())}


def returned(observation: Observation) -> list[str]:
    """The names of the metrics that a step returns."""
    steps = observation.training.steps
    return ["loss", *steps[0].metrics] if isinstance(steps, tuple) and steps else ["loss"]


def in_groups(lane: Traffic, collectives: Iterable[Collective]) -> str:
    """Where what a lane lacks moves among some of the devices of its axes alone."""
    (operation, axes), lacks = lane.lane, -over_by(lane)
    parts: dict[tuple[str, ...], int] = {}
    for entry in collectives:
        if entry.operation == operation and {axis.partition(":")[0] for axis in entry.axes} == {*axes} != {*entry.axes}:
            parts[entry.axes] = parts.get(entry.axes, 0) + (entry.bytes or 0)
    if lacks <= 0 or lacks not in parts.values():
        return ""
    over = " or ".join("×".join(part) for part, size in parts.items() if size == lacks)
    if operation not in REDUCTIONS:
        return f"as much moves over {over}, groups of its devices"
    return (
        f"as much is reduced over {over}, groups of its devices, each of which has a sum of its own: reduce over all "
        f"of {'×'.join(axes)} (jax.lax.psum without axis_index_groups)"
    )


def apart(lane: Traffic, leaves: tuple[LeafLayout, ...], collectives: Iterable[Collective]) -> str:
    """Where what a reduction lacks is reduced over its axes one after the other, first as a broadcast copy."""
    operation, axes = lane.lane
    lacks = lane.budgeted - (lane.seen or 0)
    alike = [leaf.path for leaf in leaves if lacks == reduced_bytes(leaf, axes)]
    parts = {
        entry.axes: entry.bytes
        for entry in collectives
        if entry.operation == operation and {*entry.axes} < {*axes} and entry.bytes and lacks > 0
        if entry.bytes % lacks == 0
    }
    if not alike or {axis for part in parts for axis in part} != {*axes}:
        return ""
    how = " and ".join(f"{size:,} bytes over {'×'.join(part)}" for part, size in sorted(parts.items()))
    return (
        f"as much as the gradient of {' or '.join(alike[:3])}, which is reduced as {how}, where it is broadcast first: "
        f"jax.lax.pcast(parameters, {axes}, to='varying') reduces it once, over all of them"
    )


def over_by(lane: Traffic) -> int:
    """The bytes that a lane moves beyond its budget; negative where it moves fewer."""
    return (lane.seen or 0) - lane.budgeted


def lacking(
    program: str, lane: Traffic, wrong: list[Traffic], leaves: tuple[LeafLayout, ...], metrics: list[str]
) -> str:
    """What is missing from a reduction, where the amount points at it; empty if it does not."""
    (operation, axes), lacks = lane.lane, lane.budgeted - (lane.seen or 0)
    of = {line.payload: line.bytes for line in lane.lines}
    over = "×".join(axes)
    if lane.seen is None or lacks <= 0 or operation not in REDUCTIONS:
        return ""
    alike = [leaf.path for leaf in leaves if lacks == reduced_bytes(leaf, axes)]
    which = either(alike) or together(lacks, leaves, axes)
    whole = [
        "×".join(other.lane[1]) + TIMES[over_by(other) // lacks]
        for other in wrong
        if other.lane[0] == "all-reduce" != operation and {*axes} <= {*other.lane[1]}
        if over_by(other) in (times * lacks for times in TIMES)
    ]
    if which and whole:
        return f"as much as the gradient of {which}, which is all-reduced over {whole[0]} and not scattered"
    if which and lacks <= of.get("gradients", 0):
        inside = any(len(leaf.shape) == 1 for leaf in leaves if leaf.path in alike) and operation == "all-reduce"
        made = "; where one is made of another that is reduced, as a gain's behind a normalised kernel, budget less"
        return (
            f"as much as the gradient of {which}, which nothing reduces over {over}; of what the loss does not use, "
            f"`gradients` in the contract has no pattern{made * inside}"
        )
    if lacks <= of.get("metrics", 0) and lacks % 4 == 0:
        which = "it" if len(metrics) == 1 else f"one of {', '.join(metrics)}"
        each = f"{lacks // 4} numbers" if lacks > 4 else "one number"
        return (
            f"of the metrics {each} less: {which} may be that of a device's own examples: "
            f"jax.lax.pmean(value, {axes}); if it is right as it is (NUM-4 compares each with one device's), budget "
            f"{of['metrics'] - lacks} bytes of metrics"
        )
    if operation == "reduce-scatter" and lacks == of.get("activations"):
        if any(other.lane == ("all-gather", axes) and not other.seen for other in wrong):
            return "nothing gathers them either, and the backward pass of a gather is what scatters"
        return (
            f"the gradient of what is gathered over {over} does not come back to the devices whose it is: the backward "
            f"pass of jax.lax.all_gather does that, unless jax.lax.stop_gradient stands behind it"
        )
    if lacks <= of.get("activations", 0) and program == "forward":
        return (
            f"what a device computes of its own part, as of a dimension that a product sums over or of a vocabulary, "
            f"is a part of a sum or of a maximum: jax.lax.psum(value, {axes}), or pmax"
        )
    if lacks <= of.get("activations", 0) and "backward" not in {entry.phase for entry in lane.entries}:
        return (
            f"none is reduced over {over} in the backward pass: where each device multiplies the same input with its "
            f"own part of a kernel, the input's gradient is the sum over {over}. jax.shard_map adds it with "
            f"check_vma=True; without, write a jax.custom_vjp whose backward pass is jax.lax.psum(gradient, {axes})"
        )
    return ""


def multiplied(times: float, mesh: Mapping[str, int]) -> str:
    """Which axes have as many devices as a length is too long or too short by; empty if none have."""
    for count in range(1, len(mesh) + 1):
        for axes in combinations(mesh, count):
            size = prod(mesh[axis] for axis in axes)
            over = "×".join(axes)
            if size > 1 and abs(times / size - 1) < 0.05:
                return f", and {over} has {size} devices: a sum over {over} (psum) where a mean belongs (pmean)"
            if size > 1 and abs(times * size - 1) < 0.05:
                return f", and {over} has {size} devices: a mean over {over} (pmean) where a sum belongs (psum)"
    return ""


def hint(lane: Traffic, wrong: list[Traffic], leaves: tuple[LeafLayout, ...], sharding: set[str]) -> str:
    """The likely cause of what is too many; empty if the amount points at none."""
    excess = over_by(lane)
    if excess <= 0:
        return ""
    operation, axes = lane.lane
    over = "×".join(axes)
    wide = [*lane.types] == ["float32"] or lane.types.get("float32") == 2 * excess
    if any(line.dtype in HALVES for line in lane.lines) and wide:
        return (
            "it stands before the cast: cast first, and constrain what is cast to its layout at rest before that in "
            "use, or a compiler carries the latter through the cast"
        )
    if excess in [line.bytes for line in lane.lines if line.dtype is None] and any(
        entry.realized_as.endswith(WIDENED) for entry in lane.entries
    ):
        return f"{excess:,} bytes are what moves in 16 bits: such a line names its dtype, as dtype='bfloat16'"
    unscattered = {
        -over_by(other) for other in wrong if other.lane[0] == "reduce-scatter" and {*other.lane[1]} <= {*axes}
    }
    if operation == "all-reduce" and excess in unscattered:
        return (
            "these bytes are missing from the reduce-scatter: whole gradients are summed: by a compiler (in a scan "
            "over layers, gather each in the body, and constrain gradients to the layout at rest), or by "
            "jax.lax.psum where psum_scatter belongs"
        )
    alike = [leaf.path for leaf in leaves if excess in (reduced_bytes(leaf, axes), leaf.bytes_per_device)]
    norms = norms_allowed(((leaf.shape, leaf.declared or ()) for leaf in leaves), axes)
    if operation in REDUCTIONS and excess % 4 == 0 and excess <= norms and not alike:
        listed = f"if that is it, list Communication({operation!r}, {axes}, 'metrics', {excess})"
        if sharding.intersection(axes):
            return (
                f"norms of sharded gradients reduce 4 bytes for each of them over each axis (clip_by_global_norm), 16 "
                f"(LAMB), or 8 for each of their units (adaptive_grad_clip): {listed}"
            )
        if repeated := uses(excess, leaves):
            return f"as much as {repeated}: {often(over, axes)}"
        return f"numbers that are neither gradients nor in the budget, as a metric of the whole batch: {listed}"
    if not alike and operation in REDUCTIONS:
        return f"{more} {often(over, axes)}" if (more := several(excess, lane, leaves)) else ""
    if operation == "all-gather" and (again := gathers_more(excess, leaves, axes)):
        return (
            f"as much as {again} more: constrained to its layout in use where it is used, it is gathered once; "
            "without, the backward pass gathers it again (with recomputation it may, if rematerialises says so), and "
            "so does what ravels it, as jnp.vdot(x, x), where jnp.sum(x * x) gathers nothing"
        )
    what = " or ".join(alike[:3])
    return f"as much as {what} once more: {often(over, axes)}" if alike and operation in REDUCTIONS else ""


def reduced_bytes(leaf: LeafLayout, axes: Iterable[str]) -> int:
    """The bytes of a gradient on a device that reduces it over these axes: other axes split it as its parameter."""
    held, over = (leaf.shards[0].shape if leaf.shards else leaf.shape), {*axes}
    kept = [{*spec_axes((entry,))} for entry in leaf.declared or ()] + [set[str]()] * len(leaf.shape)
    return leaf.itemsize * prod(
        part if by and not by & over else size for size, part, by in zip(leaf.shape, held, kept, strict=False)
    )


def gathers_more(excess: int, leaves: tuple[LeafLayout, ...], axes: tuple[str, ...]) -> str:
    """Which parameters that are split over these axes so many bytes are, and how often; empty if none. Several of them
    have by chance the bytes of an activation: that is said of one, or of all."""
    sharded = tuple(leaf for leaf in leaves if {*axes} & {*spec_axes(leaf.declared or ())})
    for times, often in enumerate(("once", "twice", "three times"), 1):
        whole, rest = divmod(excess, times)
        alike = [leaf.path for leaf in sharded if whole == reduced_bytes(leaf, axes)]
        if not rest and (paths := either(alike) or together(whole, sharded, axes, alone=times > 1)):
            return f"{paths} {often}"
    return ""


def uses(excess: int, leaves: tuple[LeafLayout, ...]) -> str:
    """Which small parameters so many bytes are a multiple of, as many of them as may be; empty if of none."""
    sizes = {leaf.path: leaf.itemsize * prod(leaf.shape) for leaf in leaves}
    small = [path for path, size in sizes.items() if 0 < size <= SCALARS]
    for count in range(min(len(small), MOST), 0, -1):
        for paths in combinations(small[:MOST], count):
            times, rest = divmod(excess, sum(sizes[path] for path in paths))
            if times > 1 and not rest:
                return f"{' and '.join(paths)} {times} times more"
    return ""


def several(excess: int, lane: Traffic, leaves: tuple[LeafLayout, ...]) -> str:
    """Of which parameters so many bytes may be, each once or one of them several times, or that more is reduced than
    there are; empty if not."""
    if paths := together(excess, leaves, lane.lane[1]):
        return f"as much as {paths} once more:"
    sizes = {leaf.path: leaf.itemsize * prod(leaf.shape) for leaf in leaves if leaf.shape}
    again = [path for path, size in sizes.items() if excess % size == 0 and 1 < excess // size <= USES]
    if again:
        return f"as much as {' or '.join(f'{path} {excess // sizes[path]} times' for path in again[:3])} more:"
    reduced = sum(entry.tensors or 0 for entry in lane.entries if entry.phase != "forward")
    return f"{reduced} arrays are reduced, and there are {len(leaves)} parameters:" if reduced > len(leaves) else ""


def together(excess: int, leaves: tuple[LeafLayout, ...], axes: tuple[str, ...], alone: bool = False) -> str:
    """Which parameters have so many bytes in sum where they are whole over these axes: all, or, if these ``alone`` are
    not asked, all but one or two, or two or three; empty if none."""
    sizes = {leaf.path: reduced_bytes(leaf, axes) for leaf in leaves[:MANY]}
    rest = sum(reduced_bytes(leaf, axes) for leaf in leaves) - excess
    if not rest:
        return "all parameters"
    for count in () if alone else (1, 2, 3):
        for paths in combinations(sizes, count):
            size = sum(sizes[path] for path in paths)
            if size == rest and count < 3:
                return f"all parameters but {' and '.join(paths)}"
            if size == excess:
                as_large = any(sizes[each] == sizes[path] for path in paths for each in sizes.keys() - {*paths})
                return " and ".join(paths) + " (or others as large)" * as_large
    return ""


def either(paths: list[str]) -> str:
    """One of these; empty where there is none."""
    rest = f" or {len(paths) - 3} more" if len(paths) > 3 else ""
    return " or ".join(paths[:3]) + rest


def often(over: str, axes: tuple[str, ...]) -> str:
    """Why a gradient is reduced more than once."""
    return (
        f"of a parameter that is used several times, as a tied embedding, XLA sums each use over {over}; in "
        "jax.shard_map JAX has summed what a psum or pmean sums again; there jax.lax.pcast(parameters, "
        f"{axes}, to='varying') leaves both to one sum; of vectors under jit, budget what is seen"
    )
