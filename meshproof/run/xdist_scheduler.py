"""Which xdist worker judges what. Imported where xdist runs: it need not be installed."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class ByStrategy(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one strategy, or else of one file, go to one worker.

    Its forms are compared with each other, and share compiled programs: apart, one worker waits for another.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, parameters = nodeid.partition("[")
        return parameters.partition("-")[0] if "@" in parameters else path.partition("::")[0]
