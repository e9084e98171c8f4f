"""``pytest benchmarks/ --benchmark-compare``: pytest-benchmark's own options, with a comparison that can fail a test.

pytest-benchmark times and saves. Its own comparison is switched off: it compares with the last saved run of the same
Python version, so that a regressed run becomes the next baseline, and it warns where this one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

import pytest

from meshproof.timing.baselines import FOLDER, Baseline, choose, read_baseline, read_baselines
from meshproof.timing.comparison import Comparison
from meshproof.timing.ratios import THRESHOLD
from meshproof.timing.runs import NAME, Benchmark, RunError
from meshproof.timing.summary import write_comparisons
from meshproof.timing.witness import Witnesses

PLUGIN = "meshproof-timing"
SAVE = "`pytest benchmarks/ --benchmark-autosave` saves a run, `meshproof baseline promote RUN.json` makes it one"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--baselines``; all other options are pytest-benchmark's."""
    group = parser.getgroup("meshproof")
    group.addoption("--baselines", metavar="DIR", help=f"of --benchmark-compare (default {FOLDER})")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take over the comparison before pytest-benchmark reads its options; refuse what cannot be compared."""
    if not config.pluginmanager.hasplugin("benchmark"):
        return
    option = config.option
    asked, option.benchmark_compare = option.benchmark_compare, []
    rules, option.benchmark_compare_fail = option.benchmark_compare_fail, None
    option.benchmark_save_data = True
    threshold = read_threshold(rules) if rules else THRESHOLD
    compares = asked not in (None, [])  # the values if the option is not given; it may be given empty
    if compares:
        _refuse_untimed(config)
    elif rules:
        raise pytest.UsageError("--benchmark-compare-fail says when a comparison fails; add --benchmark-compare")
    elif option.baselines:
        raise pytest.UsageError(f"--baselines {option.baselines} is of a comparison; add --benchmark-compare")
    try:
        folder = Path(option.baselines or FOLDER)
        baselines = find_baselines(asked, folder, option.benchmark_storage) if compares else []
    except RunError as error:
        raise pytest.UsageError(f"--benchmark-compare: {error}") from error
    config.pluginmanager.register(Timing(config, baselines, threshold), PLUGIN)


def read_threshold(rules: list[Any]) -> float:
    """The change that a time must exceed to fail: 0.1 for ``--benchmark-compare-fail median:10%``."""
    [rule, *others] = rules
    if others or rule.field != "median" or type(rule).__name__ != "PercentageRegressionCheck" or rule.threshold <= 0:
        raise pytest.UsageError(
            f"--benchmark-compare-fail: expected one rule for the median, such as median:10%, and got {rules}: "
            f"the interval of the ratio of medians is what is compared"
        )
    return float(rule.threshold) / 100


def find_baselines(asked: Any, folder: Path, storage: str) -> list[Baseline]:
    """The baselines that ``--benchmark-compare`` names: by default, by file, or by the number of a saved run.

    Raises `RunError`.
    """
    if asked is True:
        if found := read_baselines(folder):
            return found
        raise RunError(f"there is no baseline in {folder}; {SAVE}, and --baselines names another folder")
    if not asked:
        raise RunError("what follows = is empty; leave out both to compare with the baseline of this machine")
    path = Path(asked)
    if path.is_dir():
        raise RunError(f"{asked} is a folder: what follows --benchmark-compare is its value; put the path before it")
    if path.is_file():
        return [read_baseline(path)]
    saved = sorted(Path(storage.removeprefix("file://")).glob(f"*/{asked}*.json"))
    if len(saved) == 1:
        return [read_baseline(saved[0])]
    many = f"{len(saved)} saved runs begin so: {', '.join(map(str, saved))}"
    raise RunError(f"{asked}: {many if saved else f'no such file, and no saved run in {storage} begins so; {SAVE}'}")


def _refuse_untimed(config: pytest.Config) -> None:
    option = config.option
    if option.benchmark_disable and not option.benchmark_enable:
        raise pytest.UsageError("--benchmark-compare with --benchmark-disable: nothing would be timed")
    if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--benchmark-compare under pytest-xdist: nothing would be timed; run it without -n")


class Timing:
    """One run of benchmarks: what was timed, what failed, and the comparisons."""

    def __init__(self, config: pytest.Config, baselines: list[Baseline], threshold: float) -> None:
        self.config = config
        self.baselines = baselines
        self.threshold = threshold
        self.baseline: Baseline | None = None
        self.comparisons: list[Comparison] = []
        self.problems: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.collected: set[str] = set()
        self.selected: set[str] = set()

    @cached_property
    def witnesses(self) -> Witnesses:
        """The witnesses, run once to warm up."""
        witnesses = Witnesses()
        witnesses.measure()
        return witnesses

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Measure the witnesses before each round of every benchmark."""
        fixture: Any = yield
        alone = self.config.getoption("turns", None) is None  # when sides take turns, the other side is the witness
        if fixturedef.argname == "benchmark" and fixture.enabled and alone:
            fixture.pedantic = self.witnessed(fixture)
        return fixture  # type: ignore[no-any-return]

    def witnessed(self, fixture: Any) -> Callable[..., Any]:
        """``benchmark.pedantic`` with the witnesses before each round's own setup."""
        pedantic, times = fixture.pedantic, fixture.extra_info.setdefault("witnesses", {})

        @wraps(pedantic)
        def run(target: Any, *arguments: Any, setup: Any = None, **options: Any) -> Any:
            def set_up() -> Any:
                for name, seconds in self.witnesses.measure().items():
                    times.setdefault(name, []).append(seconds)
                return setup() if setup else None

            return pedantic(target, *arguments, setup=set_up, **options)

        return run

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember all tests, before -k and -m deselect any."""
        self.collected = {item.nodeid for item in items}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the selected tests."""
        self.selected = {item.nodeid for item in session.items}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any) -> Iterator[None]:
        """Fail a test that is worse than the baseline; a test that failed itself saves no time."""
        report: Any = yield
        fixture = getattr(item, "funcargs", {}).get("benchmark")
        if report.failed:
            self.problems[item.nodeid] = f"failed in {report.when}"
            if fixture is not None:
                fixture.has_error = True
        elif report.skipped and "benchmark" in item.fixturenames:
            self.skipped[item.nodeid] = str(
                report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
            )
        elif report.when == "call" and self.baselines and fixture is not None and fixture.stats:
            try:
                comparison = self.compare(Benchmark.parse(fixture.stats.as_dict()))
            except RunError as error:
                comparison = Comparison(item.nodeid, "refused", (str(error),))
                item.session.shouldfail = "the baseline is not comparable"
            self.comparisons.append(comparison)
            if comparison.failed:
                report.outcome, report.longrepr = "failed", str(comparison)
        return report  # type: ignore[no-any-return]

    def compare(self, benchmark: Benchmark) -> Comparison:
        """Compare one benchmark with the baseline of its machine. Raises `RunError` if there is none."""
        self.baseline = choose(self.baselines, benchmark.machine)
        [comparison] = self.baseline.compare({benchmark.name: benchmark}, self.threshold)[:1]
        return comparison

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Report each benchmark that only the baseline has as a failure."""
        done = yield
        if not self.baselines or self.config.option.collectonly or session.shouldfail or session.shouldstop:
            return done
        for comparison in self.missing():
            self.comparisons.append(comparison)
            place = (comparison.name.partition("::")[0], None, comparison.name)
            report = pytest.TestReport(comparison.name, place, {}, "failed", str(comparison), "call")
            self.config.hook.pytest_runtest_logreport(report=report)
        return done

    def missing(self) -> Iterator[Comparison]:
        """Benchmarks of the baseline that this run should have timed and did not."""
        if self.baseline is None:
            if self.selected and not self.problems:
                skipped = "; ".join(sorted(set(self.skipped.values())))
                yield Comparison("the run", "missing", (f"no benchmark was timed, and none was compared: {skipped}",))
            return
        done = {comparison.name for comparison in self.comparisons} | self.problems.keys()
        for name in (name for name in self.baseline.names if name not in done):
            if name in self.selected:
                reason = f"skipped: {self.skipped.get(name, 'it was not timed')}"
            elif name not in self.collected and self.is_whole(name):
                reason = "no such test; where it was renamed or removed on purpose, promote a run without it"
            else:
                continue
            yield Comparison(name, "missing", (f"{self.baseline.path} has it, this run has not ({reason})",))

    def is_whole(self, name: str) -> bool:
        """Whether every test of a benchmark's file was collected, or the file is gone."""
        file = name.partition("::")[0]
        narrowed = any("::" in argument for argument in self.config.args)
        seen = any(other.partition("::")[0] == file for other in self.collected)
        return not narrowed and (seen or not (self.config.rootpath / file).exists())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        """Note, before anything is saved, that the run did not finish."""
        stopped = session.shouldfail or session.shouldstop
        if stopped or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.problems["the run"] = f"did not finish ({stopped or pytest.ExitCode(exitstatus).name.lower()})"
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Save the arguments, problems and outcomes beside the times, for `meshproof baseline promote`."""
        outcomes = {comparison.name: comparison.outcome for comparison in self.comparisons}
        compared = {"baseline": str(self.baseline.path), "outcomes": outcomes} if self.baseline else None
        arguments = [*map(str, self.config.invocation_params.args)]
        output_json[NAME] = {"arguments": arguments, "problems": self.problems, "compared": compared}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write every comparison and the baseline's path."""
        if self.comparisons:
            path = self.baseline.path if self.baseline else "no baseline"
            terminalreporter.section(f"compared with {path}")
            advice = "`meshproof ab` takes turns and can tell more on a busy machine"
            write_comparisons(self.comparisons, terminalreporter.write_line, advice)
