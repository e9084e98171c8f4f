"""`meshproof plan --verify`: the book's strategies, built as they are planned, beside what compilers make of them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reference_impl
from meshproof.children import Ran
from meshproof.observing.compilers import Compiler
from meshproof.planning.compiled import beside
from meshproof.planning.layouts import Layout
from meshproof.planning.models import Model
from meshproof.planning.proposing import Piece, proposal
from meshproof.proposals import process
from meshproof.proposals.compiling import ExhaustedError, ProposalError, compile_first
from meshproof.targets import read_target
from meshproof.targets.packages import missing
from tests.system.test_plan_command import invoke
from tests.unit.planning.plans import question

pytestmark = pytest.mark.newest_stack

TINY = Model("tiny", 107_136, 2, 64, 256, heads=8, vocabulary=96, tied=True, length=16)
ASKED = (
    *("--params", 107136, "--layers", 2, "--d-model", 64, "--d-ff", 256, "--heads", 8, "--vocab", 96),
    *("--sequence", 16, "--batch-tokens", 1024, "--hardware", "h100"),
)
LAYOUTS = {
    "single device": Layout(recomputes=True),
    "data parallel": Layout(data=8, recomputes=True),
    "ZeRO-1": Layout(1, data=8, recomputes=True),
    "ZeRO-2": Layout(2, data=8, recomputes=True),
    "FSDP": Layout(3, data=8, recomputes=True),
    "HSDP": Layout(3, replica=2, data=4, recomputes=True),
    "data parallel + tensor parallel": Layout(data=4, tensor=2, recomputes=True),
    "ZeRO-1 + tensor parallel": Layout(1, data=4, tensor=2, recomputes=True),
    "FSDP + tensor parallel": Layout(3, data=4, tensor=2, recomputes=True),
    "HSDP + tensor parallel": Layout(3, replica=2, data=2, tensor=2, recomputes=True),
}
LEAST, MOST = 0.8, 2.5
"""What a program holds over its formula: docs/planning.md states it."""


def compiled(layout, tmp_path, precision="float32", target="cpu"):
    """What `plan --verify` tells of the tiny model on a layout, compiled in this process."""
    asked = question(TINY, "h100", layout.devices, 1024, precision)
    piece = Piece(layout, 1024, 1)
    facts = compile_first("reference_impl", target, [proposal(asked, piece, "adam")], str(tmp_path))
    return beside(asked, piece, facts)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if "FSDP" in name else [pytest.mark.thorough]) for name in LAYOUTS]
)
def test_the_book_is_as_planned(name, tmp_path):
    """Arguments and collectives to the byte; what is held in all within the factor that the docs state."""
    told = compiled(LAYOUTS[name], tmp_path)
    assert told["strategy"] == name and told["parted"] == []
    assert LEAST < told["held"]["compiler"] / told["held"]["formula"] < MOST, told["held"]


def test_a_cpu_that_reduces_in_float32_agrees(tmp_path):
    """What is moved in bfloat16: gradients of vectors it adds up first, and casts then; nothing else moves more."""
    told = compiled(LAYOUTS["FSDP"], tmp_path, "mixed")
    over = {each["operation"]: each["census"] / each["planned"] for each in told["collectives"]}
    assert told["parted"] == [] and over["all-gather"] == 1
    assert 1 < over["reduce-scatter"] < 1.1 and 1 < over["all-reduce"] <= 2


@pytest.mark.parametrize(
    ("strategy", "messages"),
    [
        (
            "HSDP",
            [
                "parameters: token_embedding/embedding [96, 64]: planned ",
                "optimizer state: mu/token_embedding/embedding [96, 64]: planned ",
                " 12,288 bytes of a device, the program has 24,576, sharded as P(None, None) (replicated)",
                "reduce-scatter of gradients over data: planned 425,472 bytes, budgeted 400,896, the program has ",
            ],
        ),
        (
            "ZeRO-1",
            [
                "optimizer state: mu/block_0/linear_1/kernel [64, 256]: planned 8,192 bytes of a device, the program "
                "has 65,536, sharded as P(None, None) (replicated)",
                "more arrays that are not as planned, ",
                "all-gather of nothing listed over data: planned 425,472 bytes, budgeted 0, the program has 0",
            ],
        ),
        (
            "FSDP",
            [
                "all-gather of parameters over data: planned 425,472 bytes, budgeted 821,248, the program has 821,248 "
                "(written as "
            ],
        ),
    ],
)
def test_a_proposal_built_otherwise_is_caught(strategy, messages):
    """By its arrays or collectives, though its own contract says what it does; exit code 1."""
    asked = ("--chips", 8, "--precision", "float32", "--verify", "--strategy", strategy, "--target", "cpu")
    ended = invoke(*ASKED, *asked, "--impl", "tests.implementations.misproposed")
    assert ended.exit_code == 1 and "the compiler does not agree:\n  - " in ended.stderr, ended.stderr
    for message in messages:
        assert message in ended.stderr


@pytest.mark.parametrize("target", ["gpu:h100:8", "tpu:v5e:2x4"])
def test_a_compiler_of_chips_agrees(target, tmp_path):
    """The same for a chip that is not here; a TPU's arguments are in whole tiles, which are told."""
    if problem := missing(read_target(target)):
        pytest.skip(problem)
    asked = [*map(str, ASKED), "--chips", "8", "--verify", "--strategy", "fsdp", "--target", target, "--json"]
    command = [sys.executable, "-m", "meshproof", "plan", *asked]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)["compiled"]
    assert found["target"] == target and found["parted"] == [] and found["arguments"]["unexplained"] == 0
    assert ("whole tiles of this chip" in found["arguments"]["terms"]) == target.startswith("tpu")


def test_it_is_printed():
    """What was compiled, both columns, every collective beside its budget."""
    asked = ("--chips", 8, "--precision", "float32", "--verify", "--strategy", "Data Parallel", "--target", "cpu")
    ended = invoke(*ASKED, *asked)
    assert ended.exit_code == 0, ended.stderr
    shown = ended.stdout.partition("data parallel (data=8), compiled for cpu ")[2]
    for part in ("\narguments ", "\ntemporary memory ", "\nin all, of 84.9 GB ", "all-reduce "):
        assert part in shown, part


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "cpu"), "--target is of --verify, which was not given"),
        (("--verify-timeout", 5), "--verify-timeout 5 is of --verify and of reading --impl, and neither was given"),
        (
            ("--verify", "--target", "gpu:h100:1"),
            "--target gpu:h100:1: expected a target of 2 devices or more, as the plan has; this one has 1",
        ),
        (("--verify", "--strategy", "magic"), "--strategy magic: no plan is called so; expected one of "),
        (("--verify", "--target", "gpu:x:8"), "no gpu is called 'x'"),
    ],
)
def test_what_is_not_asked_well_is_an_error(arguments, message):
    """With what was given, and what there is; exit code 2."""
    ended = invoke(*ASKED, "--chips", 2, *arguments)
    assert ended.exit_code == 2 and message in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    ("implementation", "changed", "message"),
    [
        ("gone", {}, "--impl gone: the module cannot be imported"),
        ("tests.implementations.minimal", {}, "it has no proposed(proposal)"),
        (
            "reference_impl",
            {"strategy": "pipeline"},
            "realises nothing of what fits: the book builds of a plan single device, data parallel",
        ),
        ("reference_impl", {"optimizer": "sgd"}, "the book builds no optimizer 'sgd' of a plan; it builds adam"),
        ("reference_impl", {"precision": "bfloat16"}, "no precision 'bfloat16' of a plan; it builds mixed"),
        (
            "reference_impl",
            {"vocabulary": 0, "heads": 0},
            "needs its heads, vocabulary: give --heads --vocab (the same of each: ",
        ),
    ],
)
def test_what_no_strategy_realises_is_an_error(implementation, changed, message):
    """With the reason, and what there is."""
    asked = question(TINY, "h100", 8, 1024)
    wanted = proposal(asked, Piece(Layout(3, data=8), 1024, 1), "adam") | changed
    with pytest.raises(ProposalError, match=re.escape(message)):
        compile_first(implementation, "cpu", [wanted], "unused")


def test_what_is_no_strategy_is_refused(monkeypatch):
    """By what ``proposed`` returned, before a compiler is asked."""
    monkeypatch.setattr(reference_impl, "proposed", lambda given: None)
    wanted = proposal(question(TINY, "h100", 8, 1024), Piece(Layout(3, data=8), 1024, 1), "adam")
    with pytest.raises(ProposalError, match=r"proposed\(FSDP\) returned NoneType, expected a strategy with mesh_axes"):
        compile_first("reference_impl", "cpu", [wanted], "unused")


def test_an_absent_compiler_is_named(monkeypatch):
    """With what installs it, and what needs none."""
    monkeypatch.setattr(process, "missing", lambda target: f"--target {target.name}: install it")
    ended = invoke(*ASKED, "--chips", 8, "--verify")
    assert ended.exit_code == 2 and "--target gpu:h100:8: install it; or --target cpu, which compiles" in ended.stderr


def test_what_a_compiler_says_does_not_fit_does_not(monkeypatch):
    """In its own words; exit code 1, as of a plan that fits nowhere."""
    told = {"error": "fsdp: it does not fit: RESOURCE_EXHAUSTED: 16 GB of 15", "exhausted": True}

    def compile_nothing(command, *_):
        Path(command[-1]).write_text(json.dumps(told), encoding="utf-8")
        return Ran(True, "", 0)

    monkeypatch.setattr(process, "run", compile_nothing)
    ended = invoke(*ASKED, "--chips", 8, "--verify", "--target", "cpu")
    assert ended.exit_code == 1 and "16 GB of 15; a plan may take 76.4 GB of a device" in ended.stderr, ended.stderr


def test_an_exhausted_compiler_is_known(monkeypatch):
    """By how XLA begins to say so: its first line is told, without its advice."""

    def exhausted(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory\nSee https://openxla.org/xla/errors")

    monkeypatch.setattr(Compiler, "compile", exhausted)
    wanted = proposal(question(TINY, "h100", 8, 1024), Piece(Layout(3, data=8), 1024, 1), "adam")
    with pytest.raises(ExhaustedError, match=r"it does not fit: RESOURCE_EXHAUSTED: Ran out of memory$"):
        compile_first("reference_impl", "cpu", [wanted], "unused")


@pytest.mark.parametrize(
    ("ran", "message"),
    [
        (Ran(False, "", None), "expected a program for cpu within 7 s (--verify-timeout); it stood here:"),
        (
            Ran(True, "Segmentation fault", -11),
            "expected a program for cpu; the process ended with code -11:\nSegmentation fault",
        ),
    ],
    ids=["late", "crashed"],
)
def test_a_process_that_does_not_answer_is_an_error(monkeypatch, ran, message):
    """One that takes too long, and one that dies."""
    monkeypatch.setattr(process, "run", lambda *arguments: ran)
    with pytest.raises(ProposalError) as raised:
        process.compile_proposals("reference_impl", "cpu", 8, [], 7)
    assert message in str(raised.value)


def test_a_width_that_no_mesh_divides_is_told():
    """As the book says it: its FSDP splits the width."""
    asked = question(TINY, "h100", 3, 3 * 16)
    piece = Piece(Layout(3, data=3), 48, 1)
    with pytest.raises(ProposalError, match="embed=64 is not divisible by data=3"):
        compile_first("reference_impl", "cpu", [proposal(asked, piece, "adam")], "unused")
