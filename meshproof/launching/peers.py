"""Which of several processes this is, found as `jax.distributed.initialize` finds it; no backend is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshproof.launching.group import ADDRESS, COUNT, NUMBER
from meshproof.launching.marks import MARKS

DETECTION = 60
"""Seconds that a cluster may take to say who its processes are."""


@dataclass(frozen=True)
class Peers:
    """Where process 0 is, ``HOST:PORT``, how many processes there are, and which of them this is."""

    address: str
    count: int
    number: int


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether `meshproof launch` started this process."""
    return MARKS in environment and NUMBER in environment


def by_as_many(command: str, environment: Mapping[str, str]) -> str:
    """The same command for as many processes: by the launcher, or for whoever starts each of them."""
    if not is_launched(environment):
        return f"{command} --distributed"
    return f"meshproof launch -n {find_peers(environment).count} -- {command}"


def find_peers(environment: Mapping[str, str]) -> Peers:
    """Those of the three variables; where none of them is set, those of a cluster that JAX knows.

    Raises ``ValueError`` where neither says it whole.
    """
    given = {name: environment[name] for name in (ADDRESS, COUNT, NUMBER) if name in environment}
    if not given:
        return detected()
    if missing := [name for name in (ADDRESS, COUNT, NUMBER) if name not in given]:
        raise ValueError(f"{' and '.join(missing)}: not set, expected all of {ADDRESS}, {COUNT} and {NUMBER}")
    for name in (COUNT, NUMBER):
        if not given[name].isdecimal():
            raise ValueError(f"{name} is {given[name]!r}, expected a whole number")
    host, _, port = given[ADDRESS].rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{ADDRESS} is {given[ADDRESS]!r}, expected HOST:PORT, such as 10.0.0.1:8476")
    peers = Peers(given[ADDRESS], int(given[COUNT]), int(given[NUMBER]))
    if not 0 <= peers.number < peers.count:
        raise ValueError(
            f"{NUMBER} is {peers.number}, expected one from 0 to {peers.count - 1}, since {COUNT} is {peers.count}"
        )
    return peers


def detected() -> Peers:
    """Those that Slurm, Open MPI, Kubernetes or a TPU pod names, by JAX's own detection."""
    from jax._src.clusters import ClusterEnv

    address, count, number, _ = ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, DETECTION)
    if address is None or count is None or number is None:
        raise ValueError(
            f"no coordinator: JAX knows no cluster here, and none of {ADDRESS}, {COUNT} and {NUMBER} is set; on one "
            f"machine `meshproof launch -n 2 -- COMMAND` sets them"
        )
    return Peers(address, count, number)
