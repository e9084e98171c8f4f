"""A fleet that waits for a process that is gone burns its hours in silence, and nobody knows where to look."""

from signal import SIGKILL, SIGSTOP

import pytest


@pytest.mark.clause("MPR-2")
def test_a_process_that_dies_is_named(lost, judge):
    """A process that dies MUST make the others stop with an error that names it, in bounded time. (Of two that train
    together, as the implementation starts them, one is killed after some steps. Within 60 s the command ends with an
    error, its output names ``process 1``, and no process is left.)"""
    judge.clear(judge.see(lost(SIGKILL)).problems())


@pytest.mark.clause("MPR-3")
@pytest.mark.parametrize("how", [SIGSTOP, "sleep"], ids=["stopped", "asleep"])
def test_a_process_that_is_stuck_is_named(lost, judge, how):
    """A process that is alive but stuck MUST be named, with its last step, in bounded time. (After some steps it is
    stopped by SIGSTOP; or it falls asleep before it marks its next one, and its heartbeats go on. Within 60 s the
    command ends with an error, one line of its output names ``process 1`` and the step that it marked last, and no
    process is left.)"""
    seen = judge.see(lost(how))
    judge.clear([*seen.problems(), *seen.unplaced()])
