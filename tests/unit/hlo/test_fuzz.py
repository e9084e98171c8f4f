"""Damaged text is refused in words or counted in full: the readers of HLO never crash, hang or lose a collective."""

import re
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given

from meshproof.hlo import HloError, census
from meshproof.hlo.arrays import element_types, held_arrays
from meshproof.hlo.host_transfers import host_memory, host_transfers
from meshproof.hlo.products import products
from tests.fuzzing import bounded, damaged, fuzz
from tests.unit.hlo.texts import STORED, counted, stored

SCRAPS = [*'"{}()%,=\n\r\x00\ud800', "", "/*", "*/", "-1", "0", "7", "9" * 5000, "99999999999", "x", "ROOT ", "ENTRY "]
SCRAPS += ["while", "all-reduce", "all-gather-done", "async-start", "replica_groups=", "channel_id=", "f32[]", "s4[3]"]
SCRAPS += ["[1,99999999999]<=[99999999999]", "mesh['a'=99999999999] {'a'}", "{{0,1,2,3,4,5,6,7}}", "{}", "HloModule "]
MATTERS = (
    "replica_groups",
    "target_pairs",
    "calls=",
    "body=",
    "to_apply=",
    "HloModule",
    "ENTRY",
    "parameter(",
    "tuple",
)
VISIBLE = re.compile(
    r" = (?P<type>\(.*?\)|\S+) (?P<opcode>all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\(.*?(?:replica_groups=(?!\{\{0\},)|source_target_pairs=\{\{)"
)
"""A collective, as somebody sees it who knows no more than how they are spelled."""


@dataclass(frozen=True)
class Text:
    """A stored text of which one line was replaced; its `repr` is short enough to be printed."""

    name: str
    number: int
    line: str

    @property
    def whole(self):
        """The text."""
        lines = stored(self.name).split("\n")
        return "\n".join([*lines[: self.number], self.line, *lines[self.number + 1 :]])

    @property
    def mesh(self):
        """The mesh of the text."""
        return counted(self.name).mesh


@st.composite
def texts(draw, matters=lambda line: True):
    """A stored text with one damaged line, of those that matter."""
    name = draw(st.sampled_from(STORED))
    lines = stored(name).split("\n")
    number = draw(st.sampled_from([number for number, line in enumerate(lines) if matters(line)]))
    return Text(name, number, draw(damaged(lines[number], SCRAPS)))


def read(reader, *arguments):
    """What was read; nothing where it was refused, with a line and a problem."""
    with bounded():
        try:
            return reader(*arguments)
        except HloError as error:
            assert re.match(r"line \d+, column \d+: \w", str(error))
            return None


@fuzz(300)
@given(texts() | texts(lambda line: any(word in line for word in MATTERS)))
def test_any_damage_is_read_or_refused(text):
    """Whatever happened to a line, every reader of compiled text reads it or raises an `HloError`."""
    read(census, text.whole, text.mesh)
    for reader in (host_transfers, host_memory, held_arrays, element_types, products):
        read(reader, text.whole)


@fuzz(100)
@given(st.sampled_from(STORED), st.data())
def test_lost_and_doubled_lines_are_read_or_refused(name, data):
    """So it is where whole lines are lost, doubled or swapped."""
    read(census, data.draw(damaged(stored(name), cuts=("lines",))), counted(name).mesh)


@fuzz(300)
@given(texts(VISIBLE.search))
def test_a_visible_collective_is_counted_or_refused(text):
    """While anybody can see a collective in its damaged line, the census is refused or has no fewer bytes of its kind.

    Every operand is defined in other lines, which are whole: what moves is what moved before.
    """
    seen = VISIBLE.search(text.line)
    found = read(census, text.whole, text.mesh) if seen else None
    if found is not None:
        assert total(found) >= total(census(stored(text.name), text.mesh))


def total(entries):
    """Bytes of all collectives; what is unknown is more than any."""
    return sum(float("inf") if entry.bytes is None else entry.bytes for entry in entries)
