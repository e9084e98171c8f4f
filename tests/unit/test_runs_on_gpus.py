"""Two runs on a GPU differ in bits and nobody is to blame, where its program adds in another order each time."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from meshproof.contract import Contract
from meshproof.judging.judge import Judge
from meshproof.judging.records import Record
from meshproof.measures.continuing import Course
from meshproof.measures.numerics import bitwise
from meshproof.observing.programs import Compiled, Program, read_program
from meshproof.observing.seen import NotSupported
from meshproof.run.course import follow
from suites.test_checkpoints_restore_bitwise import test_checkpoints_restore_bitwise as judge_checkpoints
from suites.test_runs_are_bitwise_equal import test_runs_are_bitwise_equal as judge_runs

BEFORE, AFTER = ({"w": np.float32(value)} for value in (1.0, 1.0000001))
SAME, OTHER = bitwise(BEFORE, BEFORE), bitwise(BEFORE, AFTER)
SUMS = ("scatter f32[96,64], jit(step)/scatter-add",)
OPENS = "XLA_FLAGS=--xla_gpu_exclude_nondeterministic_ops=true"


def judged(clause, rerun=SAME, restored=SAME, continued=SAME, unordered=SUMS):
    """How a clause ends that judges a state's bits, of a program that has these sums, and what it says."""
    step = replace(Program.unseen(NotSupported("")), unordered=unordered)
    checkpoints = SimpleNamespace(moved=(), retyped=(), restored=restored, continued=continued)
    training = SimpleNamespace(steps=(), rerun=rerun, checkpoints=checkpoints)
    seen = SimpleNamespace(training=training, programs=SimpleNamespace(step=step))
    judge = Judge(Record("a_test", "NUM-5", "Two runs", None), "pytest a_test")
    case = SimpleNamespace(strategy=SimpleNamespace(save=print, restore=print))
    try:
        clause(seen, judge) if clause is judge_runs else clause(case, seen, judge)
    except (pytest.skip.Exception, pytest.fail.Exception) as ended:  # a skip would be that of this test
        return type(ended), str(ended)
    return None, judge.record.message


def test_runs_are_not_judged_where_a_gpu_adds_in_any_order():
    """With the sum, and the flag that opens it; equal runs pass, and without such a sum, or its text, others fail."""
    ended, told = judged(judge_runs, rerun=OTHER)
    assert ended is pytest.skip.Exception and SUMS[0] in told and OPENS in told
    assert judged(judge_runs) == (None, "")
    for none in ((), NotSupported("train_step has no lower()")):
        ended, told = judged(judge_runs, rerun=OTHER, unordered=none)
        assert ended is pytest.fail.Exception and "differs in bits" in told


PROGRAM = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (table: f32[96,64], rows: s32[16,1], new: f32[16,64]) -> f32[96,64] {
  %table = f32[96,64]{1,0} parameter(0)
  %rows = s32[16,1]{1,0} parameter(1)
  %new = f32[16,64]{1,0} parameter(2)
  ROOT %scatter = f32[96,64]{1,0} scatter(%table, %rows, %new), update_window_dims={1}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add, metadata={op_name="jit(step)/scatter-add"}
}
""".replace("\\\n", "")


@pytest.mark.parametrize(
    ("platform", "flags", "found"),
    [("gpu", "", SUMS), ("gpu", "--xla_gpu_deterministic_ops=true", ()), ("cpu", "", ()), ("tpu", "", ())],
)
def test_a_program_is_read_for_the_platform_that_runs_it(monkeypatch, platform, flags, found):
    """Such sums are looked for where a GPU takes them, and no flag forbids them."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setenv("XLA_FLAGS", flags)
    case = SimpleNamespace(mesh={"data": 1}, compiles_only=False, contract=Contract())
    compiled = Compiled(PROGRAM, memory=None, flops=0.0, seconds=None)
    program = read_program(SimpleNamespace(case=case), "train_step", object(), compiled)
    assert program.unordered == found
    assert isinstance(program.flops, NotSupported) == (platform == "gpu"), "tuning decides which of them XLA counts"


def test_a_run_is_followed_on_the_cpu_throughout():
    """Losses of three processes are compared bit for bit, so that none of them may be on the accelerator."""

    class Run:
        settings = SimpleNamespace(implementation="reference_impl")
        targets, asked = ("native",), []

        def __init__(self, others):
            self.observers = {"native": Process("on the accelerator")} | others

        @property
        def fresh(self):
            return Process("fresh")

    class Process:
        def __init__(self, name):
            self.name = name

        def answer(self, *_):
            Run.asked.append(self.name)
            return Course((), ())

        run = second_life = continued = answer

        def close(self):
            pass

    follow(Run({}))
    follow(Run({"cpu": Process("of the CPU")}))
    assert Run.asked == [*["fresh"] * 5, "of the CPU"]


def test_the_step_after_a_checkpoint_is_not_compared_there():
    """Its report says so; the restored state is held to its bits as everywhere."""
    ended, told = judged(judge_checkpoints, continued=OTHER)
    assert ended is None and OPENS in told
    assert judged(judge_checkpoints) == (None, "")
    for how in ({"restored": OTHER, "continued": OTHER}, {"continued": OTHER, "unordered": ()}):
        ended, told = judged(judge_checkpoints, **how)
        assert ended is pytest.fail.Exception and "differs in bits" in told
