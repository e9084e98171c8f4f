"""By which keys a step draws: its keys are given a generator that draws the same numbers and tells of each draw.

JAX calls a key's generator wherever it draws, in a loop, in ``shard_map``, in a layer of a library. Followed are keys
in the state and those that a step makes by ``jax.random.key`` or ``PRNGKey``; one that it closes over is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax.extend.random import define_prng_impl

from meshproof.observing.members import state_and_metrics
from meshproof.observing.other_states import GENERATORS, is_raw_key
from meshproof.observing.seen import NotSupported

WORDS = {name: words for words, name in GENERATORS.items()}
MADE, WRAPPED = (jax.random.key, jax.random.PRNGKey), jax.random.wrap_key_data
"""How a step makes keys, as it was before anything is put in its place."""

FOLLOWED, SHARED = "tensorfloat32", "high"
"""Precisions of products that nobody asks for, under which JAX traces a function anew. (For a CPU they are one.)"""

DrawBits = Callable[[jax.Array, int, tuple[int, ...]], jax.Array]


@dataclass(frozen=True)
class Draw:
    """One draw: the place in the program, the device of the mesh (-1 for all of them), the key, and the shape."""

    place: int
    device: int
    key: bytes
    shape: tuple[int, ...]


Drawn = Mapping[Draw, int]
"""Every draw of a step, and how often it was made."""


def drawn(trainer: Any, state: Any, batches: Sequence[Any]) -> tuple[Drawn, ...] | NotSupported:
    """What each of these steps draws, one after the other. The state is donated, if the trainer donates it."""
    if jax.process_count() > 1:
        return NotSupported("over several processes keys are not followed")
    told, places, steps = Counter[Draw](), count(), []

    def bits(generator: str) -> DrawBits:
        def draw(words: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
            place = next(places)

            def tell(key: Any, device: Any) -> None:
                told[Draw(place, int(device), np.asarray(key).tobytes(), shape)] += 1

            jax.debug.callback(tell, words, _device())
            return jax.random.bits(WRAPPED(words, impl=generator), shape, f"uint{width}")

        return draw

    try:
        with drawing_by(bits, FOLLOWED) as retyped:
            state = retyped(state)
            for batch in batches:
                state, metrics = state_and_metrics(trainer.train_step(state, batch))
                jax.block_until_ready(metrics)
                jax.effects_barrier()
                steps.append(dict(told))
                told.clear()
    except Exception as error:  # it may ask what type a key has, or hand it to the host
        return NotSupported(f"its step takes no keys of another type: {str(error).splitlines()[0]}")
    if not any(steps):
        return NotSupported(
            "no draw of its step was seen: one that only splits keys makes none, and a draw by a key that is neither "
            "in its state nor made in it is not followed"
        )
    if not all(steps):
        return NotSupported("it draws in some of its first steps only, which are not compared")
    return tuple(steps)


@contextmanager
def drawing_by(bits: Callable[[str], DrawBits], precision: str) -> Iterator[Callable[[Any], Any]]:
    """All keys that are made get a generator of these bits, and a state's do by the function that this yields."""
    generators = {name: _generator(name, bits(name)) for name in WORDS}

    def own(name: Any = None) -> Any:
        return generators.get(str(name or jax.config.jax_default_prng_impl), name)

    def made(seed: Any, *, impl: Any = None) -> jax.Array:
        return MADE[0](seed, impl=own(impl))

    def wrapped(words: Any, *, impl: Any = None) -> jax.Array:
        return WRAPPED(words, impl=own(impl))

    def retyped(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if is_raw_key(leaf):
            return WRAPPED(leaf, impl=own(GENERATORS[leaf.shape[-1]]))
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return WRAPPED(jax.random.key_data(leaf), impl=own(jax.random.key_impl(leaf)))
        return leaf

    with (
        patch.multiple(jax.random, key=made, PRNGKey=made, wrap_key_data=wrapped),
        jax.default_matmul_precision(precision),
    ):
        yield lambda state: jax.tree.map(retyped, state)


def again(steps: Sequence[Drawn]) -> tuple[int, int, Draw, Draw] | None:
    """A draw of a step by a key of an earlier one, at another place or on another device: the steps and both draws.

    What a place draws by the same keys in all steps is constant, and no matter here.
    """
    by_place = [_by_place(step) for step in steps]
    still = _still(by_place)
    moving = [{at: of for at, of in step.items() if at not in still} for step in by_place]
    for later, after in enumerate(moving):
        for earlier, before in enumerate(moving[:later]):
            were = {key: draw for of in before.values() for key, draw in of.items()}
            for at in sorted(after):
                for key in sorted(after[at].keys() & were.keys()):
                    return earlier, later, were[key], after[at][key]
    return None


def left_behind(steps: Sequence[Drawn]) -> Draw | None:
    """A draw that a device makes by the same keys in every step, where others make it by new ones."""
    by_place = [_by_place(step) for step in steps]
    still = _still(by_place)
    moved = {place for place, _ in by_place[0].keys() - still}
    behind = sorted((place, device) for place, device in still if place in moved)
    return next(iter(by_place[0][behind[0]].values())) if behind else None


def alike_in_rows(step: Drawn, rows: int, weights: Set[tuple[int, ...]]) -> Draw | None:
    """A draw for each of a device's rows that all devices make by the same keys, where another is by their own.

    What has the shape of one of the ``weights`` may be drawn for it, and is then the same on all devices.
    """
    by_place: dict[int, dict[int, set[bytes]]] = {}
    for draw in step:
        by_place.setdefault(draw.place, {}).setdefault(draw.device, set()).add(draw.key)
    alike = {place for place, of in by_place.items() if len(of) > 1 and len(set(map(frozenset, of.values()))) == 1}
    own = any(len(of) > 1 for place, of in by_place.items() if place not in alike)
    shared = (draw for draw in step if draw.place in alike and draw.shape[:1] == (rows,) and draw.shape not in weights)
    return next(shared, None) if own else None


def may_mask(step: Drawn, rows: int, weights: Set[tuple[int, ...]]) -> bool:
    """Whether a draw may be for each of a device's ``rows``: not one of single numbers, by fewer keys, and not one of
    the shape of one of the ``weights``, unless that has as many rows."""
    keys = Counter((draw.place, draw.device) for draw in step)
    return any(
        keys[draw.place, draw.device] >= max(rows, 2)
        if not draw.shape
        else draw.shape not in weights or draw.shape[0] == rows
        for draw in step
    )


def drawn_twice(step: Drawn, computed: int = 1) -> bool:
    """Whether a device draws more than once by one key: what is split twice alike, and drawn once, harms nothing.
    Layers that are ``computed`` twice, the second time in the backward pass, draw as often."""
    times: Counter[tuple[int, bytes]] = Counter()
    for draw, often in step.items():
        times[draw.device, draw.key] += often
    return any(often > computed for often in times.values())


def moves_on(steps: Sequence[Drawn]) -> bool:
    """Whether each step draws by other keys than the one before it."""
    return all(_keys(one) != _keys(other) for one, other in pairwise(steps))


def as_on_one_device(mesh: Drawn, one: Drawn) -> bool:
    """Whether a step draws the same arrays by the same keys on a mesh as on one device."""
    return _keys(mesh) == _keys(one)


def _keys(step: Drawn) -> set[tuple[bytes, tuple[int, ...]]]:
    return {(draw.key, draw.shape) for draw in step}


def _by_place(step: Drawn) -> dict[tuple[int, int], dict[bytes, Draw]]:
    found: dict[tuple[int, int], dict[bytes, Draw]] = {}
    for draw in step:
        found.setdefault((draw.place, draw.device), {})[draw.key] = draw
    return found


def _still(by_place: Sequence[Mapping[tuple[int, int], Mapping[bytes, Draw]]]) -> set[tuple[int, int]]:
    """The places and devices that draw by the same keys in every step."""
    return {at for at, of in by_place[0].items() if all(step.get(at, {}).keys() == of.keys() for step in by_place)}


def _device() -> jax.Array | np.int32:
    """The number of the device that this runs on, among those of the axes that are written out by hand."""
    manual = tuple(getattr(jax.sharding.get_abstract_mesh(), "manual_axes", ()))
    return jax.lax.axis_index(manual) if manual else np.int32(-1)


def _generator(name: str, bits: DrawBits) -> Any:
    """One that splits and folds as the named one, and draws these bits."""

    def words_of(made: Callable[..., Any]) -> Callable[..., Any]:
        return lambda words, given: jax.random.key_data(made(WRAPPED(words, impl=name), given))

    return define_prng_impl(
        key_shape=(WORDS[name],),
        seed=lambda seed: jax.random.key_data(MADE[0](seed, impl=name)),
        split=words_of(jax.random.split),
        random_bits=bits,
        fold_in=words_of(jax.random.fold_in),
        name=f"followed {name}",
        tag="followed",
    )
