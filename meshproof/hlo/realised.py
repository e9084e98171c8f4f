"""How each logical operation appears on each target, as a table: what `realisations` finds in tiny programs.

The programs are an FSDP step of two layers, an FSDP×TP step of six layers in a scan (both by shardings alone), and one
that writes every collective out in ``jax.shard_map``. Whether a collective is asynchronous is left out: that depends on
its size, and a program's schedule tells. A test compiles them wherever a target's compiler is installed, and fails for
what is missing here as for what no longer appears.
"""

from dataclasses import dataclass

TARGETS = {
    "cpu": "CPU",
    "gpu": "GPU (H200)",
    "v4": "TPU v4",
    "v5e": "TPU v5e",
    "v5p": "TPU v5p",
    "v6e": "TPU v6e",
    "tpu7x": "TPU7x",
}
_TPUS = ("v4", "v5e", "v5p", "v6e", "tpu7x")
_ALL = tuple(TARGETS)


@dataclass(frozen=True)
class Realised:
    """A logical operation as a compiler writes it.

    ``sharded`` are the targets that write it so for a program with shardings alone, ``by_hand`` those that do for the
    collective that the program writes itself. ``rounds`` are what it sends on the wire, in parts of S(n − 1)/n.
    """

    operation: str
    realized_as: str
    sharded: tuple[str, ...]
    by_hand: tuple[str, ...]
    rounds: int = 1


REALISED = (
    Realised("all-gather", "all-gather", _ALL, _ALL),
    Realised("all-gather", "fusion all-gather", ("v5e",), ()),
    Realised("all-gather", "dynamic-update-slice + all-reduce", _TPUS, (), 2),
    Realised("reduce-scatter", "reduce-scatter", ("gpu", "tpu7x"), ("cpu", "gpu")),
    Realised("reduce-scatter", "fusion all-reduce-scatter", ("v4", "v5e", "v5p", "v6e"), ()),
    Realised("reduce-scatter", "all-reduce + dynamic-slice", ("cpu", *_TPUS), _TPUS, 2),
    Realised("all-reduce", "all-reduce", _ALL, _ALL, 2),
    Realised("all-to-all", "all-to-all", (), _ALL),
    Realised("collective-permute", "collective-permute", (), _ALL),
)


def realised_on(target: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What a target writes for (shardings alone, collectives by hand), as (operation, what it is realised as).

    Raises ``ValueError`` for an unknown target.
    """
    if target not in TARGETS:
        raise ValueError(f"target {target!r}; expected one of {', '.join(TARGETS)}")
    return (
        {(each.operation, each.realized_as) for each in REALISED if target in each.sharded},
        {(each.operation, each.realized_as) for each in REALISED if target in each.by_hand},
    )
