"""``python -m tests.regressions [NAME …]`` shows each fault on a version that has it, and none on one that has not.

And what ``meshproof compare`` makes of going from the good version to the bad one.
"""

from __future__ import annotations

import sys

from meshproof.comparison import compare
from meshproof.environments import open_environment
from tests.regressions.known import KNOWN, Regression
from tests.regressions.running import run_suites, shows


def judge(regression: Regression) -> bool:
    """Whether only the bad version shows the fault, and a comparison names its clause; prints what was seen."""
    good, bad = (open_environment(side).python for side in (regression.good, regression.bad))
    seen = {python: shows(regression, python) for python in (good, bad)}
    comparison = compare(*(run_suites(str(python), *regression.run) for python in (good, bad)))
    told = [
        difference
        for difference in comparison.differences
        if difference.place == regression.clause and (regression.select or regression.name in (difference.case or ""))
    ]
    print(f"{regression.name}, {regression.clause}:")
    for side, python in ((regression.good, good), (regression.bad, bad)):
        print(f"  {side}: {seen[python].strip(' -') or 'all is well'}")
    print(*(f"  {difference.change}: {difference.case}" for difference in told), sep="\n", flush=True)
    return bool(seen[bad]) and not seen[good] and {difference.change for difference in told} == {"regressed"}


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - {regression.name for regression in KNOWN}
    if unknown:
        sys.exit(f"no regression is called {', '.join(sorted(unknown))}")
    chosen = [regression for regression in KNOWN if regression.name in sys.argv[1:] or not sys.argv[1:]]
    wrong = [regression.name for regression in chosen if not judge(regression)]
    if wrong:
        sys.exit(f"not as it is written down: {', '.join(wrong)}")
