"""A run goes on in silence from what its checkpoint lacks: other examples, or the same twice, and no step fails."""

import pytest

from meshproof.measures.continuing import astray
from meshproof.observing.runs import STEPS
from meshproof.observing.seen import NotExercised


@pytest.mark.clause("CKP-6")
def test_stopped_runs_continue(course, judge):
    """A run that is stopped MUST continue from its last checkpoint with the examples and, bit for bit, the losses of a
    run that is not. (Stopped after each of five steps, and continued, in a process that did not train it; and resumed
    after the sixth, stopped after the eleventh, and resumed again. Where it never saved it trains the same.)"""
    judge.clear(astray(course, killed=False))
    if not any(run.resumed for run in course.continued):
        judge.note(f"judged without a second resume: the run ends after step {len(course.steps)} of {STEPS}")


@pytest.mark.clause("CKP-6")
def test_runs_killed_in_a_save_continue(course, judge):
    """A run that is killed while it saves MUST continue from that step or the one before, with the examples and the
    losses that follow it. (Killed before each file operation of a save that changes the folder, and with half of each
    file written, in the fourth save and in the first after a resume: the arrays and the iterator's place are of one
    step, or the checkpoint is none.)"""
    if not any(run.during for run in course.continued):
        judge.see(NotExercised("no file operation of the save was heard in its process: a kill has no place there"))
    judge.clear(astray(course, killed=True))
