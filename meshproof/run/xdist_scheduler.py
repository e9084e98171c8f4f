"""Which xdist worker runs which tests. Imported only under xdist, which need not be installed."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling


class ByStrategy(LoadScopeScheduling):  # type: ignore[misc]
    """The suites' tests of one strategy, or else the tests of one file, go to one worker.

    The forms of a strategy are compared with each other and share compiled programs; on several workers they would
    wait for each other. What a file of other tests has made for itself is made once.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, parameters = nodeid.partition("[")
        file = path.partition("::")[0]
        is_of_a_case = "@" in parameters and PurePosixPath(file).parent.name == "suites"
        return parameters.partition("-")[0] if is_of_a_case else file
