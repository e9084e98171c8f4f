"""``python -m tests.regressions [NAME …]`` shows each fault on a version that has it, and none on one that has not."""

from __future__ import annotations

import sys

from meshproof.environments import open_environment
from tests.regressions.known import KNOWN, Regression
from tests.regressions.running import shows


def judge(regression: Regression) -> bool:
    """Whether the bad version shows the fault and the good one does not; prints what was seen of both."""
    found = {}
    for side in (regression.bad, regression.good):
        found[side] = shows(regression, open_environment(side).python)
        print(f"{regression.name}: {side}: {found[side] or 'all is well'}", flush=True)
    return bool(found[regression.bad]) and not found[regression.good]


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - {regression.name for regression in KNOWN}
    if unknown:
        sys.exit(f"no regression is called {', '.join(sorted(unknown))}")
    chosen = [regression for regression in KNOWN if regression.name in sys.argv[1:] or not sys.argv[1:]]
    wrong = [regression.name for regression in chosen if not judge(regression)]
    if wrong:
        sys.exit(f"not as it is written down: {', '.join(wrong)}")
