"""Two runs on a GPU differ in bits and nobody is to blame, where its program adds in another order each time."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from meshproof.judging.judge import Judge
from meshproof.judging.records import Record
from meshproof.measures.numerics import bitwise
from meshproof.observing.programs import Program
from meshproof.observing.seen import NotSupported
from suites.test_checkpoints_restore_bitwise import test_checkpoints_restore_bitwise as judge_checkpoints
from suites.test_runs_are_bitwise_equal import test_runs_are_bitwise_equal as judge_runs

BEFORE, AFTER = ({"w": np.float32(value)} for value in (1.0, 1.0000001))
SAME, OTHER = bitwise(BEFORE, BEFORE), bitwise(BEFORE, AFTER)
SUMS = ("scatter f32[96,64], jit(step)/scatter-add",)
OPENS = "XLA_FLAGS=--xla_gpu_exclude_nondeterministic_ops=true"


def judged(clause, rerun=SAME, restored=SAME, continued=SAME, unordered=SUMS):
    """What the record says after a clause has judged a state's bits, of a program that has these sums."""
    step = replace(Program.unseen(NotSupported("")), unordered=unordered)
    checkpoints = SimpleNamespace(moved=(), retyped=(), restored=restored, continued=continued)
    training = SimpleNamespace(steps=(), rerun=rerun, checkpoints=checkpoints)
    seen = SimpleNamespace(training=training, programs=SimpleNamespace(step=step))
    judge = Judge(Record("a_test", "NUM-5", "Two runs", None), "pytest a_test")
    case = SimpleNamespace(strategy=SimpleNamespace(save=print, restore=print))
    clause(seen, judge) if clause is judge_runs else clause(case, seen, judge)
    return judge.record


def test_runs_are_not_judged_where_a_gpu_adds_in_any_order():
    """With the sum, and the flag that opens it; equal runs pass, and without such a sum, or its text, others fail."""
    with pytest.raises(pytest.skip.Exception, match=f"scatter.*{OPENS}"):
        judged(judge_runs, rerun=OTHER)
    judged(judge_runs)
    for none in ((), NotSupported("train_step has no lower()")):
        with pytest.raises(pytest.fail.Exception, match="differs in bits"):
            judged(judge_runs, rerun=OTHER, unordered=none)


def test_the_step_after_a_checkpoint_is_not_compared_there():
    """Its report says so; the restored state is held to its bits as everywhere."""
    assert OPENS in judged(judge_checkpoints, continued=OTHER).message
    assert not judged(judge_checkpoints).message
    with pytest.raises(pytest.fail.Exception, match="differs in bits"):
        judged(judge_checkpoints, restored=OTHER, continued=OTHER)
    with pytest.raises(pytest.fail.Exception, match="differs in bits"):
        judged(judge_checkpoints, continued=OTHER, unordered=())
