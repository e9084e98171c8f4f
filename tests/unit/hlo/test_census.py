"""The census finds the communication that theory says, on every target, and cannot be fooled."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from meshproof.hlo import Collective, census
from tests.unit.hlo.texts import STORED, counted, stored

MESH = {"data": 2, "model": 4}


@pytest.mark.parametrize("name", STORED)
def test_stored_text(name: str) -> None:
    """What CPU, GPU and TPU compilers wrote is counted as the arithmetic and the instructions beside each text say."""
    expected = counted(name)
    found = census(stored(name), expected.mesh)
    assert frozenset(found) == expected.collectives
    assert list(found) == sorted(found, key=lambda c: (c.operation, c.axes, c.dtype, c.realized_as, c.phase))


def test_stored_texts_hold_every_spelling() -> None:
    """The stored texts spell groups as lists, as iotas with and without transposition, and as meshes, mixed in one."""
    texts = {name: stored(name) for name in STORED}
    for spelling in (r"replica_groups=\{\{", r"replica_groups=\[\d", r"\]T\(1,0\), dim", r"replica_groups=mesh\["):
        assert any(re.search(spelling, text) for text in texts.values()), spelling
    mixed = texts["cpu-0.10.2-scanned_layers"]
    assert "replica_groups={{" in mixed and "replica_groups=mesh[" in mixed


@pytest.mark.parametrize("program", ["scanned_layers", "loops"])
def test_targets_agree(program: str) -> None:
    """Different compilers realise one program differently, and move the same number of tensors over the same axes."""
    moved = set()
    for name in STORED:
        if name.endswith(program):
            tensors: Counter[tuple[str, tuple[str, ...]]] = Counter()
            for entry in census(stored(name), counted(name).mesh):
                tensors[entry.operation, entry.axes] += -1 if entry.tensors is None else entry.tensors
            moved.add(frozenset(tensors.items()))
    assert len(moved) == 1


# Elements moved per step by each strategy on the MLP of 2,506,762 parameters, from theory: with D, F, C = 512, 2048, 10
# the kernels are 784 D + 2 D F + D C elements, the biases of width D 2 D, of width F and C one each.
SHARDED = 784 * 512 + 2 * 512 * 2048 + 512 * 10 + 2 * 512  # leaves with an axis `embed`: 2,504,704
WHOLE = 2048 + 10  # the other two biases
TP2 = 784 * 512 + 2 * 512 * 1024 + 512 * 10 + 2 * 512  # the same with F split over model=2
TP4 = 784 * 512 + 2 * 512 * 512 + 512 * 10 + 2 * 512
THEORY = {
    "dp": {("all-reduce", "data", "backward"): SHARDED + WHOLE, ("all-reduce", "data", "forward"): 1},
    "zero1": {
        ("reduce-scatter", "data", "backward"): SHARDED,
        ("all-reduce", "data", "backward"): WHOLE,
        ("all-reduce", "data", "forward"): 1,
        ("all-gather", "data", "any"): SHARDED,
    },
    "fsdp": {
        ("all-gather", "data", "any"): SHARDED,
        ("reduce-scatter", "data", "backward"): SHARDED,
        ("all-reduce", "data", "backward"): WHOLE,
        ("all-reduce", "data", "forward"): 1,
    },
    "tp": {("all-reduce", "model", "forward"): 256 * 512, ("all-reduce", "model", "backward"): 256 * 512},
    "fsdp_tp_2x4": {
        ("all-gather", "data", "any"): TP4,
        ("reduce-scatter", "data", "backward"): TP4,
        ("all-reduce", "data", "backward"): 2048 // 4 + 10,
        ("all-reduce", "data", "forward"): 1,
        ("all-reduce", "model", "forward"): 256 // 2 * 512,
        ("all-reduce", "model", "backward"): 256 // 2 * 512,
    },
    "fsdp_tp_4x2": {
        ("all-gather", "data", "any"): TP2,
        ("reduce-scatter", "data", "backward"): TP2,
        ("all-reduce", "data", "backward"): 2048 // 2 + 10,
        ("all-reduce", "data", "forward"): 1,
        ("all-reduce", "model", "forward"): 256 // 4 * 512,
        ("all-reduce", "model", "backward"): 256 // 4 * 512,
    },
}


def test_theory_is_the_published_table() -> None:
    """The element counts of theory are those that were measured when this census did not exist."""
    assert SHARDED == 2_504_704
    assert SHARDED + WHOLE == 2_506_762
    assert (TP4, TP2) == (931_840, 1_456_128)


@pytest.mark.parametrize("strategy", THEORY)
def test_strategies_move_what_theory_says(strategy: str) -> None:
    """An annotated strategy, compiled here, moves exactly the theoretical elements, over the right axes."""
    import jax

    from tests.unit.hlo.programs import STRATEGIES, train_step

    text = train_step(jax.devices(), strategy).compile().as_text()
    moved: Counter[tuple[str, str, str]] = Counter()
    for entry in census(text, STRATEGIES[strategy][0]):
        assert entry.dtype == "f32"
        assert entry.bytes is not None
        # jax 0.12 gives the gather of a parameter the path of the parameter: its phase is not compared.
        phase = "any" if entry.operation == "all-gather" else entry.phase
        moved["".join(entry.operation), ",".join(entry.axes), phase] += entry.bytes // 4
    assert dict(moved) == THEORY[strategy]


def test_storage_annotation_alone_is_seen_through() -> None:
    """FSDP annotated on storage alone is no FSDP: the census shows other bytes than theory."""
    import jax

    from tests.unit.hlo.programs import train_step

    text = train_step(jax.devices(), "fsdp_tp_2x4", constrain_parameters=False).compile().as_text()
    over_data = sum(e.bytes or 0 for e in census(text, MESH) if e.operation == "all-gather" and e.axes == ("data",))
    assert over_data != TP4 * 4


@pytest.mark.parametrize("program", ["collectives", "loops", "two_layers", "scanned_layers"])
def test_fresh_programs_move_what_was_counted(program: str) -> None:
    """Programs compiled by the installed jax for CPU move what was counted in the stored text of an earlier one."""
    import jax

    from tests.unit.hlo.programs import FIXTURES

    expected = counted(f"cpu-0.12.0.1-{program}")
    found = census(FIXTURES[program](jax.devices()).compile().as_text(), expected.mesh)

    def strip(entries: frozenset[Collective] | tuple[Collective, ...]) -> Counter[Collective]:
        return Counter(replace(entry, phase="", executions=None, realized_as="") for entry in entries)

    assert strip(found) == strip(expected.collectives)
