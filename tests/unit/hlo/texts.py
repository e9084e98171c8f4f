"""Stored texts with their counted censuses, and small modules written by hand."""

from dataclasses import dataclass
from pathlib import Path

from meshproof.hlo import Collective

FIXTURES = Path(__file__).parent / "fixtures"
STORED = sorted(path.stem for path in FIXTURES.glob("*.hlo"))

# Attributes of an all-reduce over all devices of the module.
EVERYBODY = "channel_id=1, replica_groups={}, use_global_device_ids=true, to_apply=%add"

ADD = """
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
"""


@dataclass(frozen=True)
class Counted:
    """The census beside a stored text, checked by hand against theory and the text: its comments say how."""

    mesh: dict[str, int]
    collectives: frozenset[Collective]


def stored(name: str) -> str:
    """The text of a fixture."""
    return (FIXTURES / f"{name}.hlo").read_text(encoding="utf-8")


def counted(name: str) -> Counted:
    """The census beside a fixture: a mesh, then one line per collective, columns apart by two spaces or more."""
    lines = (FIXTURES / f"{name}.census").read_text(encoding="utf-8").splitlines()
    mesh, *rows = (line for line in lines if not line.startswith("#"))
    sizes = dict(pair.split("=") for pair in mesh.removeprefix("mesh: ").split(","))
    return Counted({axis: int(size) for axis, size in sizes.items()}, frozenset(map(_read_row, rows)))


def _read_row(row: str) -> Collective:
    operation, axes, executions, tensors, bytes_, dtype, realized_as, phase = (
        column.strip() for column in row.split("  ") if column
    )
    amounts = (None if amount == "unknown" else int(amount) for amount in (executions, tensors, bytes_))
    return Collective(operation, tuple(axes.split(",")), *amounts, dtype, realized_as, phase)


def module(entry: str, computations: str = ADD, header: str = "num_partitions=8") -> str:
    """A module of these computations and of an entry with this body.

    `<everybody>` stands for the attributes of an all-reduce over all devices.
    """
    body = "".join(f"  {line.strip()}\n" for line in entry.replace("<everybody>", EVERYBODY).strip().splitlines())
    return f"HloModule test, {header}\n{computations}\nENTRY %main (p: f32[64]) -> f32[64] {{\n{body}}}\n"


def computation(name: str, root: str) -> str:
    """A computation of f32[64] to f32[64] whose root reads %a."""
    lines = f"  %a = f32[64]{{0}} parameter(0)\n  ROOT %o = f32[64]{{0}} {root}"
    return f"\n%{name} (a: f32[64]) -> f32[64] {{\n{lines}\n}}\n"


def all_reduce(
    groups: str, opcode: str = "all-reduce", attributes: str = "channel_id=1, use_global_device_ids=true"
) -> str:
    """A module with one all-reduce of f32[64] over these groups."""
    return module(
        f"""%p = f32[64]{{0}} parameter(0)
        ROOT %r = f32[64]{{0}} {opcode}(%p), replica_groups={groups}, {attributes}, to_apply=%add"""
    )


MESH = {"data": 2, "model": 4}
OVER_DATA = "channel_id=1, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=%add"


def sliced(uses: str, before: str = "", computations: str = ADD) -> str:
    """An all-reduce over data whose result %r has these uses."""
    return module(
        f"""%p = f32[64]{{0}} parameter(0)
        %id = u32[] partition-id()
        %size = u32[] constant(32)
        %four = u32[] constant(4)
        %zero = u32[] constant(0)
        {before}
        %r = f32[64]{{0}} all-reduce(%p), {OVER_DATA}
        {uses}""",
        computations,
    )


OWN_OFFSET = "%row = u32[] divide(%id, %four)\n%offset = u32[] multiply(%row, %size)"
OWN_SLICE = "dynamic-slice(%r, %offset), dynamic_slice_sizes={32}"

FUSED = (
    ADD
    + """
%take (a: f32[64], b: u32[]) -> f32[32] {
  %a = f32[64]{0} parameter(0)
  %b = u32[] parameter(1)
  %size.1 = u32[] constant(32)
  %half = f32[] constant(0.5)
  %halves = f32[64]{0} broadcast(%half), dimensions={}
  %scaled = f32[64]{0} multiply(%a, %halves)
  %offset.1 = u32[] multiply(%b, %size.1)
  ROOT %taken = f32[32]{0} dynamic-slice(%scaled, %offset.1), dynamic_slice_sizes={32}
}
"""
)
