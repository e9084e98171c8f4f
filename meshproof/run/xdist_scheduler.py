"""Which xdist worker runs which tests. Imported only under xdist, which need not be installed."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class ByStrategy(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one strategy, or else of one file, go to one worker.

    The forms of a strategy are compared with each other and share compiled programs; on several workers they would
    wait for each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, parameters = nodeid.partition("[")
        return parameters.partition("-")[0] if "@" in parameters else path.partition("::")[0]
