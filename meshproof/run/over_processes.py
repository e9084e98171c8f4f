"""The cases of a run that are observed over several processes: one group of processes serves them all."""

from __future__ import annotations

import pytest

from meshproof.cases import Case
from meshproof.contract import Step
from meshproof.judging.records import case_of
from meshproof.observing.groups import observe_over_processes
from meshproof.observing.seen import NotExercised, Seen
from meshproof.run.conformance import Conformance


class OverProcesses:
    """A pytest plugin beside that of the run."""

    def __init__(self, conformance: Conformance) -> None:
        self.conformance, self.names = conformance, list[str]()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the cases whose tests ask for it."""
        asking = [item for item in session.items if "over" in getattr(item, "fixturenames", ())]
        self.names = [case.id for case in map(case_of, asking) if case and case.target == "cpu"]

    def steps(self, case: Case, processes: int) -> Seen[tuple[Step, ...]] | NotExercised:
        """Those of a case over so many processes, observed with all others of the run that are."""
        if self.conformance.config.option.distributed:
            return NotExercised("--distributed trains over the processes of this run: judge it in a run of one process")
        if case.target != "cpu":
            return NotExercised("processes are started on virtual CPU devices alone")
        names = self.names if case.id in self.names else [case.id]
        return observe_over_processes(self.conformance.settings, processes, case.id, names)
