"""What becomes of the implementation's own loop where it is stopped or killed: once for all tests of a process."""

from __future__ import annotations

import importlib
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from meshproof.measures.continuing import Course
from meshproof.observing.runs import find_run
from meshproof.observing.seen import NotSupported, Seen
from meshproof.run.conformance import Conformance


@cache
def follow(conformance: Conformance) -> Seen[Course]:
    """The steps of its run, and what its runs do that were stopped or killed, each in a process that had not."""
    found = find_run(importlib.import_module(conformance.settings.implementation))
    if isinstance(found, NotSupported):
        return found  # and no process is started
    with TemporaryDirectory(prefix="meshproof-run-") as name:
        folder = Path(name)
        with closing(conformance.fresh) as first:
            course = first.run(folder)
        if isinstance(course, Course):
            with closing(conformance.fresh) as second:
                course = second.second_life(folder, course)
        if isinstance(course, Course):
            with ExitStack() as ended:  # an accelerator would compute other bits than the two before
                third = conformance.observers.get("cpu") or ended.enter_context(closing(conformance.fresh))
                course = third.continued(folder, course)
        return course
