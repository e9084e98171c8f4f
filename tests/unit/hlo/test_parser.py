"""The parser reads what XLA's own parser reads, and refuses what is no whole module."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshproof.hlo import HloError, Shape, census, parse
from tests.unit.hlo.texts import ADD, STORED, all_reduce, module, stored

# Where the enum of jaxlib and the text disagree on more than spelling.
_OPCODES = {"sin": "sine", "cos": "cosine", "exp": "exponential", "expm1": "exponential-minus-one", "tan": "tan"}
_ALIASED_START = re.compile(r"(all-reduce-start\([^\n]*?), output_to_operand_aliasing=\{\{1\}: \(0, \{\}\)\}")


def read_by_xla(text: str) -> dict[str, dict[str, tuple[str, tuple[str, ...], str | None]]]:
    """Computations of a module as jaxlib's parser sees them: instructions by name, with opcode, operands and shape."""
    import jaxlib._hlo

    # Its own printer writes this attribute on all-reduce-start, its parser does not know it there.
    parsed = jaxlib._hlo.hlo_module_from_text(_ALIASED_START.sub(r"\1", text))
    return {
        computation.name: {
            instruction.name: (
                _opcode_of(str(instruction.opcode)),
                tuple(operand.name for operand in instruction.operands()),
                str(instruction.shape) if hasattr(instruction, "shape") else None,
            )
            for instruction in computation.instructions()
        }
        for computation in parsed.computations()
    }


def _opcode_of(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name.rpartition(".")[2].removeprefix("k")).lower()
    return _OPCODES.get(words, words)


def check_against_xla(text: str) -> None:
    """Same computations, same instructions, same opcodes, operands and shapes."""
    truth = read_by_xla(text)
    seen = parse(text).computations
    # XLA unfolds `reduce-scatter-start(…)` into an async-start that calls a computation the text never names.
    assert set(seen) <= set(truth), "a computation that XLA does not see"
    assert all(name.startswith("async_wrapped") for name in set(truth) - set(seen)), "a computation was lost"
    for name, computation in seen.items():
        found = {instruction.name: instruction for instruction in computation.instructions}
        assert set(found) == set(truth[name]), f"instructions of {name}"
        for instruction_name, (opcode, operands, shape) in truth[name].items():
            instruction = found[instruction_name]
            folded = opcode.startswith("async-") and instruction.opcode.endswith(opcode.removeprefix("async"))
            assert folded or instruction.opcode == opcode, instruction.text
            assert tuple(operand.name for operand in instruction.operands) == operands, instruction.text
            if shape is not None:
                assert instruction.type_text == shape, instruction.text


@pytest.mark.parametrize("name", STORED)
def test_agrees_with_xla_on_stored_text(name: str) -> None:
    """On text of CPU, GPU and TPU the parser sees the instructions, opcodes and operands that XLA's own parser sees."""
    check_against_xla(stored(name))


@pytest.mark.parametrize("program", ["two_layers", "scanned_layers", "collectives", "loops"])
def test_agrees_with_xla_on_fresh_text(program: str) -> None:
    """On text compiled by the installed jax the parser sees what XLA's own parser sees."""
    import jax

    from tests.unit.hlo.programs import FIXTURES

    check_against_xla(FIXTURES[program](jax.devices()).compile().as_text())


def test_reads_header_and_entry() -> None:
    """Header attributes, the entry, its root and the instructions' shapes are read."""
    found = parse(all_reduce("{{0,1,2,3,4,5,6,7}}"))
    assert (found.name, found.num_partitions, found.replica_count, found.is_scheduled) == ("test", 8, 1, False)
    assert found.entry.name == "main"
    assert found.entry.root.opcode == "all-reduce"
    assert found.entry.root.shapes == (Shape("f32", (64,)),)
    assert [operand.name for operand in found.entry.root.operands] == ["p"]


def test_sees_past_comments_layouts_and_unknown_attributes() -> None:
    """`/*index=5*/`, tiles, memory spaces, new attributes and new opcodes change nothing."""
    text = module(
        """%p = f32[64]{0:T(128)(2,1)S(1)} parameter(0), a_new_attribute={x="},{ROOT %fake = f32[] f("}
        %new = f32[64]{0} some-new-opcode(%p), dimensions={0}
        ROOT %r = (f32[64]{0:T(128)S(3)}, /*index=1*/f32[64]{0}) all-reduce(%p, /*index=1*/%new), channel_id=1,"""
        """ replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%add, brand_new=[1,{2}]"""
    )
    (entry,) = census(text, {"data": 8})
    assert (entry.tensors, entry.bytes) == (2, 512)


def test_joins_instructions_that_run_over_several_lines() -> None:
    """A string or a literal with line breaks belongs to the instruction it began in."""
    text = module(
        """%p = f32[64]{0} parameter(0)
        %c = s32[2,2]{1,0} constant({ {1, 2},
        {3, 4} })
        ROOT %r = f32[64]{0} custom-call(%p, %c), custom_call_target="x", backend_config="a
        b = c, (
        d" """
    )
    names = [instruction.name for instruction in parse(text).entry.instructions]
    assert names == ["p", "c", "r"]


NOT_MODULES = {
    "empty": ("", "empty text"),
    "blank": ("\n \n", "empty text"),
    "stablehlo": ('module @jit_f {\n  func.func public @main() { "stablehlo.add" }\n}', "StableHLO"),
    "prose": ("hello\n", "this is not HLO"),
    "no entry": (f"HloModule m\n{ADD}", "no ENTRY computation"),
    "header cut": ("HloModule m, entry_computation_layout={(f32[64]{0}", "unbalanced brackets in the module header"),
    "two modules": (all_reduce("{}") + all_reduce("{}"), "unexpected text outside of any computation"),
    "text after": (all_reduce("{}") + "junk\n", "unexpected text outside of any computation"),
    "junk after brace": (all_reduce("{}").rstrip() + " junk\n", "text after the end of a computation"),
    "not an instruction": (module("ROOT %p = f32[64]{0} parameter(0)\nnonsense"), "not an instruction"),
    "no opcode": (module("ROOT %p = (f32[64]{0}, f32[]) "), "expected an opcode"),
    "no root": (module("%p = f32[64]{0} parameter(0)"), "has no ROOT"),
    "two roots": (module("ROOT %p = f32[64]{0} parameter(0)\nROOT %q = f32[64]{0} copy(%p)"), "second ROOT"),
    "two of a name": (module("%p = f32[64]{0} parameter(0)\nROOT %p = f32[64]{0} parameter(1)"), "defines p twice"),
    "two entries": (
        all_reduce("{}") + module("ROOT %p = f32[64]{0} parameter(0)", "").partition("\n")[2],
        "defined twice",
    ),
}


@pytest.mark.parametrize(("text", "problem"), NOT_MODULES.values(), ids=NOT_MODULES)
def test_refuses_what_is_no_module(text: str, problem: str) -> None:
    """Whatever is not one whole module is an error that says what is wrong, where, and what was expected."""
    with pytest.raises(HloError, match=re.escape(problem)) as caught:
        parse(text)
    assert f"line {caught.value.line}, column {caught.value.column}" in str(caught.value)
    assert "expected" in str(caught.value) or any(word in problem for word in ("ROOT", "unbalanced", "twice"))


def test_points_to_line_and_column() -> None:
    """An error names the 1-based line and column of the offending text and shows it."""
    text = all_reduce("[[0,1]]")
    with pytest.raises(HloError) as caught:
        census(text, {"data": 8})
    line = text.splitlines()[caught.value.line - 1]
    assert line[caught.value.column - 1 :].startswith("[[0,1]]")
    assert "[[0,1]]" in str(caught.value)
    assert "report it with this line" in str(caught.value)


@settings(max_examples=60)
@given(st.data())
def test_refuses_every_truncation(data: st.DataObject) -> None:
    """Text cut anywhere before its last closing brace is an error, never a smaller census."""
    name = data.draw(st.sampled_from(["cpu-0.12.0.1-two_layers", "gpu-0.10.2-collectives", "tpu-0.12.0.1-loops"]))
    text = stored(name).rstrip()
    assert text.endswith("}")
    with pytest.raises(HloError):
        parse(text[: data.draw(st.integers(0, len(text) - 1))])
