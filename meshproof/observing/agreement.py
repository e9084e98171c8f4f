"""Several processes observe one case in lockstep: what one of them sees otherwise is told, before all hang.

A process that leaves a collective out, for it raised where the others did not, leaves the others waiting, or trains
with what was meant for the next one. So all say how each look went, through JAX's coordinator and not by a collective.
"""

from __future__ import annotations

import time
from typing import Any

import jax
from jax._src import distributed

from meshproof.launching.peers import Peers

PATIENCE = 120.0
"""Seconds in which all must have looked: they trace and compile the same, on cores that others may use too."""

AFTER_FAILURE = 30.0
"""Seconds in which all must have failed where one has."""

HEARTBEAT = 20
"""Seconds after which the death of a process ends the others."""


AT_THE_DOOR = 1.0
"""Seconds that a process may take from its last word to its end."""


class LockstepError(BaseException):
    """A process saw otherwise than another, or did not end its look; no strategy's ``except`` is to catch it."""


def join(peers: Peers) -> int:
    """Become one of these processes, on CPU by gloo; its number."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        peers.address,
        peers.count,
        peers.number,
        initialization_timeout=60,
        heartbeat_timeout_seconds=HEARTBEAT,
    )
    return peers.number


def agree(case: str, look: int, how: str) -> None:
    """Say how a look went, nothing where it went well, and hear how it went elsewhere.

    Raises `LockstepError` where another process saw another kind of thing, or says nothing for a time: one that waits
    in a collective for what failed here never does.
    """
    patience = AFTER_FAILURE if how else PATIENCE
    state = distributed.global_state
    client: Any = state.client
    number, count = state.process_id, state.num_processes
    client.key_value_set(key(case, look, number), how)
    for other in range(count):
        try:
            said = client.blocking_key_value_get(key(case, look, other), int(patience * 1000))
        except jax.errors.JaxRuntimeError as error:
            raise LockstepError(
                f"process {other} did not end look {look} at {case} within {patience:g} s, which process {number} "
                f"ended: {how or 'it went well'}"
            ) from error
        if kind(said) != kind(how):
            raise LockstepError(
                f"look {look} at {case}: process {number}: {how or 'it went well'}; process {other}: "
                f"{said or 'it went well'}"
            )


def leave() -> None:
    """To be called last: process 0, which is the coordinator, goes after the others, or JAX would abort them."""
    state = distributed.global_state
    client: Any = state.client
    client.key_value_set(key("the end", 0, state.process_id), "")
    if state.process_id == 0:
        for other in range(state.num_processes):
            client.blocking_key_value_get(key("the end", 0, other), int(PATIENCE * 1000))
        time.sleep(AT_THE_DOOR)


def key(case: str, look: int, number: int) -> str:
    """Under which a process says it."""
    return f"meshproof/{case}/{look}/{number}"


def kind(how: str) -> str:
    """What must be the same: what was unseen, and the error's class, but not its words, which may name a device."""
    return ":".join(how.split(":")[:2])
