"""An instruction knows what it reads, who reads it, and what it runs; a computation knows who runs it."""

from itertools import chain

import pytest

from meshproof.hlo import HloError, Instruction, parse
from tests.unit.hlo.texts import STORED, module, stored


@pytest.mark.parametrize("name", STORED)
def test_users_and_callers_are_the_other_ends(name: str) -> None:
    """Who reads a value is who has it as an operand, as often; who calls a computation is who names it, as often."""
    program = parse(stored(name))
    reads = [(operand, user, at) for user in program.instructions for at, operand in enumerate(user.operands)]
    assert {(value, user, at) for value in program.instructions for user, at in value.users} == set(reads)
    assert sum(len(value.users) for value in program.instructions) == len(reads) > 0
    runs = [(callee, by) for by in program.instructions for callee in chain.from_iterable(by.callees.values())]
    bodies = program.computations.values()
    assert {(body, caller) for body in bodies for caller in body.callers} == set(runs)
    assert sum(len(body.callers) for body in bodies) == len(runs) > 0


@pytest.mark.parametrize("name", STORED)
def test_instructions_know_where_they_stand(name: str) -> None:
    """Every instruction stands in its computation under its name, and reads nothing of another one."""
    for computation in parse(stored(name)).computations.values():
        assert computation.root.is_root
        for instruction in computation.instructions:
            assert computation.by_name[instruction.name] is instruction
            assert {operand.computation for operand in instruction.operands} <= {computation}


def read(line: str) -> Instruction:
    """The second instruction of a module, which may read the tuple %t of two arrays."""
    text = f"%t = (f32[64]{{0}}, f32[64]{{0}}) parameter(0)\n{line}\nROOT %r = f32[64]{{0}} iota(), iota_dimension=0"
    return parse(module(text)).entry.by_name["i"]


def test_elements_of_a_tuple_are_found_by_their_takers() -> None:
    """Takers are those of a tuple that only get-tuple-elements read."""
    taken = read("%i = f32[64]{0} get-tuple-element(%t), index=1")
    (whole,) = taken.operands
    assert taken.computation.takers == {whole: {1: [taken]}}
    also_whole = "%i = (f32[64]{0}, f32[64]{0}) copy(%t)\n%g = f32[64]{0} get-tuple-element(%t), index=1"
    assert read(also_whole).computation.takers == {}


def test_literals_are_no_operands() -> None:
    """What stands in the brackets of a constant or parameter is its literal; an integer is read, nothing else is."""
    constant = read("%i = s32[] constant(-7)")
    assert (constant.operands, constant.literal, constant.integer) == ((), "-7", -7)
    assert read("%i = s32[2]{0} constant({1, 2})").integer is None
    assert read("%i = f32[] parameter(3)").parameter_number == 3


@pytest.mark.parametrize(
    ("line", "ask", "problem"),
    [
        ("%i = f32[64]{0} negate(%lost)", "operands", "operand lost is not defined in computation main"),
        ("%i = f32[64]{0} negate(%t", "operands", "unbalanced brackets: the line is cut off"),
        ("%i = f32[64]{0} parameter(x)", "parameter_number", "expected a parameter with its number"),
        ("%i = f32[64]{0} get-tuple-element(%t)", "tuple_index", "expected a get-tuple-element with index="),
        ("%i = f32[64]{0} negate(%t), a=}", "attributes", "unbalanced brackets after the operands"),
        ("%i = f32[64]{0} call(%t), to_apply=%lost", "callees", "computation lost is not in the text"),
    ],
)
def test_what_the_line_does_not_tell_is_refused(line: str, ask: str, problem: str) -> None:
    """A question that a line does not answer is an error that points into it."""
    with pytest.raises(HloError, match=problem) as caught:
        getattr(read(line), ask)
    assert caught.value.line == 11


def test_an_operand_that_is_not_there_is_refused() -> None:
    """An operand beyond the last one is an error that says how many there are."""
    with pytest.raises(HloError, match="expected an operand 1, saw 1 operands"):
        read("%i = f32[64]{0} negate(%t)").operand(1)
