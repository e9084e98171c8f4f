"""A flag that does nothing any more is worse than none: somebody relies on it."""

from importlib.metadata import version

import pytest

from meshproof.observing.seen import NotExercised, NotSupported
from meshproof.targets import read_target
from meshproof.targets.flags import INERT, UNKNOWN, concerns, last_release

LOOKED_AT = 8
"""Programs in which a flag must have changed something, at most: one of each strategy."""


@pytest.mark.clause("FLG-1")
def test_flags_change_the_program(flags, flag_problems, cases, judge):
    """Every compiler flag in ``XLA_FLAGS`` and ``LIBTPU_INIT_ARGS`` MUST be known to the compiler that it names and
    change a train step that this compiles. (Looked for in the first eight strategies, by compiling without it.)"""
    if not flags:
        judge.see(NotExercised("neither XLA_FLAGS nor LIBTPU_INIT_ARGS sets a flag of the compiler"))
    problems = []
    for target in dict.fromkeys(case.target for case in cases):
        kind = read_target(target).kind
        left, looked_at = {name: INERT for name in flags if concerns(name, kind)}, []
        for case in one_of_each_strategy(cases, target)[:LOOKED_AT]:
            if INERT in left.values() and not isinstance(seen := flag_problems(case), NotSupported):
                looked_at.append(case.id)
                found = judge.see(seen)
                left = {name: found[name] for name in left if found[name]}
        if left and not looked_at:
            judge.see(seen)
        problems += [told(name, flags[name], problem, target, looked_at) for name, problem in left.items()]
    judge.clear(problems)


def one_of_each_strategy(cases, target):
    """Its first case on a target."""
    found = {}
    for case in cases:
        if case.target == target:
            found.setdefault(case.strategy.name, case)
    return [*found.values()]


def told(name, value, problem, target, looked_at):
    """What is wrong with a flag, and what to do."""
    flag = f"--{name}={value}, target {target}"
    if problem == UNKNOWN:
        last = last_release(name)
        known = f"the last release seen to have it is jaxlib {last}" if last else "no release from 0.4.38 on had it"
        return f"{flag}: expected a flag of this compiler, jaxlib {version('jaxlib')} has none of this name; {known}"
    if problem != INERT:
        return f"{flag}: expected a value that the compiler takes, it says: {problem}"
    where = f"{looked_at[0]} and {len(looked_at) - 1} more" if len(looked_at) > 1 else looked_at[0]
    return f"{flag}: expected another program with it than without, saw the same of {where}; leave it away"
