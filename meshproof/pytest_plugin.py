"""The pytest plugin: ``pytest suites/ --impl my_trainer.meshproof``.

Collection reads names and contracts only. The fixture ``observation`` observes a case once per run, in a process of
its own. Under xdist the tests of one strategy run on one worker, and observations are shared between workers as files.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshproof.cases import REFERENCE, Case
from meshproof.children import CASE_TIMEOUT, read_seconds
from meshproof.contract import Batch, Evaluation, ReferenceTrajectory, Step
from meshproof.files import check_json, check_writable
from meshproof.judging.judge import Judge
from meshproof.judging.records import case_of, record_of
from meshproof.judging.spec import GROUPS, read_clauses
from meshproof.launching.peers import Peers, by_as_many, find_peers, is_launched
from meshproof.measures.continuing import Course
from meshproof.measures.reading import Reading
from meshproof.observing.lost_processes import Harm, Losses, Lost
from meshproof.observing.observation import Observation
from meshproof.observing.seen import Seen
from meshproof.run.conformance import NAME, Conformance
from meshproof.run.course import follow
from meshproof.run.distributed import Distributed
from meshproof.run.over_processes import OverProcesses
from meshproof.targets import EXAMPLES, HOST, MOST_VIRTUAL, read_target
from meshproof.targets.packages import missing

OVER = f"{NAME}-over-processes"
pytest_plugins = ["meshproof.expectations.plugin", "meshproof.comparison.plugin", "meshproof.run.operations"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add Meshproof's options."""
    group = parser.getgroup(NAME, "conformance of distributed training")
    group.addoption("--impl", default=REFERENCE, metavar="MODULE", help="implementation under test")
    group.addoption("--quick", action="store_true", help="each strategy, framework, model and variant at least once")
    group.addoption("--devices", type=int, default=8, metavar="N", help="virtual CPU devices (default 8)")
    group.addoption(
        "--distributed",
        action="store_true",
        help="one of several processes, found as jax.distributed.initialize finds them; implied by `meshproof launch`",
    )
    group.addoption("--target", action="append", metavar="TARGET", help=f"repeatable (default cpu): {EXAMPLES}")
    group.addoption("--conformance-report", metavar="PATH", help="write the record of the run as JSON")
    group.addoption("--compile-cache", metavar="DIR", help="keep compiled programs there (default: the user's cache)")
    group.addoption("--no-compile-cache", action="store_true", help="keep no compiled programs for the next run")
    group.addoption(
        "--require",
        metavar="CLAUSES",
        help="fail what could not be judged of these groups or clauses of SPEC.md, such as NUM,COM-2",
    )
    group.addoption(
        "--case-timeout",
        default=f"{CASE_TIMEOUT:g}",
        metavar="SECONDS",
        help=f"a case that takes longer to be observed, or its truth, is a failed one (default {CASE_TIMEOUT:g})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse, before the first test, options that cannot work."""
    config.addinivalue_line("markers", "clause(id, applies, among): the clause of SPEC.md that a test judges")
    if not 1 <= config.getoption("devices") <= MOST_VIRTUAL:
        raise pytest.UsageError(f"--devices {config.getoption('devices')}: expected 1 to {MOST_VIRTUAL:,}")
    try:
        read_seconds(config.getoption("case_timeout"))
        check_required(required(config), config.rootpath)
        check_targets(config.getoption("target") or ())
        check_selection(config.getoption("keyword"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    peers = peers_of(config)
    report, kept = config.getoption("conformance_report"), config.getoption("compile_cache")
    if report:
        try:
            check_writable(Path(report), "--conformance-report")
            check_json(Path(report), "--conformance-report")
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
    if kept and Path(kept).exists() and not Path(kept).is_dir():
        raise pytest.UsageError(
            f"--compile-cache {kept}: this is no folder; name one, which is made where there is none"
        )
    run = Conformance(config)
    config.pluginmanager.register(run, NAME)
    config.pluginmanager.register(OverProcesses(run), OVER)
    if peers:
        config.pluginmanager.register(Distributed(run, peers), f"{NAME}-distributed")


def peers_of(config: pytest.Config) -> Peers | None:
    """The processes that this one is among; ``None`` where it is alone. Process 0 writes what is to be written."""
    option = config.option
    option.distributed = option.distributed or is_launched(os.environ)
    if not option.distributed:
        return None
    try:
        peers = find_peers(os.environ)
    except ValueError as error:
        raise pytest.UsageError(f"--distributed: {error}") from error
    if getattr(option, "numprocesses", None):
        raise pytest.UsageError("--distributed: its processes are the workers, expected no -n")
    if len(targets := config.getoption("target") or ["cpu"]) > 1 or targets[0] not in HOST:
        raise pytest.UsageError(f"--distributed --target {','.join(targets)}: expected one of {', '.join(HOST)}")
    if option.devices % peers.count:
        raise pytest.UsageError(f"--devices {option.devices} do not divide among {peers.count} processes")
    if peers.number:
        option.conformance_report = None
    return peers


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which suites are run, where it is suites."""
    suites, start = (config.rootpath / "suites").resolve(), config.invocation_params.dir
    named = [(start / argument.partition("::")[0]).resolve() for argument in config.args]
    return f"suites: {suites}" if any(path.is_relative_to(suites) for path in named) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile, nor ever among what is there then, since it stays: the one took a sixth of the
    time, the other, at the latest when pytest looks at the end, a third of a run that has nothing to do."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def conformance(pytestconfig: pytest.Config) -> Conformance:
    """The run of the suites that this process is part of."""
    plugin: Conformance = pytestconfig.pluginmanager.get_plugin(NAME)  # type: ignore[assignment]
    return plugin


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """The judge of the running test."""
    return Judge(record_of(request.node), alone(request.node), case_of(request.node), required(request.config))


def required(config: pytest.Config) -> list[str]:
    """The groups and clauses that must be judged. Raises ``ValueError`` for one that no suite can judge."""
    given = config.getoption("require")
    words = [] if given is None else [word.strip() for word in given.split(",")]
    expected = f"expected groups of clauses, {', '.join(GROUPS)}, or clauses, such as COM-2"
    for word in words:
        group, _, number = word.partition("-")
        if group not in GROUPS or (number and not number.isdecimal()) or word.endswith("-"):
            raise ValueError(f"--require {word or repr(given)}: {expected}")
    return words


def check_required(words: Iterable[str], root: Path) -> None:
    """Raises ``ValueError`` for a clause that no suite of ``root`` judges: a demand that no run can fail."""
    for word in words:
        group, _, number = word.partition("-")
        if number:
            known = dict.fromkeys(clause.id for clause in read_clauses(root) if clause.id.startswith(f"{group}-"))
            if word not in known:
                raise ValueError(f"--require {word}: no suite judges it, expected {group} or one of {', '.join(known)}")


def check_targets(names: Iterable[str]) -> None:
    """Raises ``ValueError`` for a target that there is not, or whose compiler is not installed."""
    for problem in map(missing, map(read_target, names)):
        if problem:
            raise ValueError(problem)


def check_selection(select: str) -> None:
    """Raises ``ValueError`` for an invalid ``-k``: under xdist pytest would crash."""
    from _pytest.mark.expression import Expression

    try:
        Expression.compile(select) if select else None
    except SyntaxError as error:
        raise ValueError(f"-k {select!r}: {error.msg}; expected the like of 'fsdp and not bf16'") from error


def alone(item: pytest.Item) -> str:
    """The command that runs one test again, from the folder that this run was started in."""
    here = item.config.invocation_params.dir == item.config.rootpath
    command = f"{'pytest' if here else 'meshproof check'} '{item.nodeid}'{chosen_options(item.config)}"
    return by_as_many(command, os.environ) if item.config.option.distributed else command


def chosen_options(config: pytest.Config) -> str:
    """The options that must be repeated to run the same test."""
    usual = {"--impl": REFERENCE, "--devices": 8, "--case-timeout": f"{CASE_TIMEOUT:g}", "--require": None}
    usual |= {"--operations": None}
    given = {name: config.getoption(name) for name in usual}
    options = [f"{name} {value}" for name, value in given.items() if value != usual[name]]
    options += [f"--target {target}" for target in config.getoption("target") or ()]
    return "".join(f" {option}" for option in options)


@pytest.fixture
def observation(case: Case, conformance: Conformance, judge: Judge) -> Observation:
    """The observation of the case; the test ends here if it could not be observed."""
    return judge.see(conformance.observation(case))


@pytest.fixture
def observe_also(conformance: Conformance, judge: Judge) -> Callable[[Case], Observation]:
    """The observation of another case, for clauses that compare two."""
    return lambda other: judge.see(conformance.observation(other))


@pytest.fixture
def over(case: Case, pytestconfig: pytest.Config, judge: Judge) -> Callable[[int], tuple[Step, ...]]:
    """The first steps of the case over so many processes."""
    plugin: OverProcesses = pytestconfig.pluginmanager.get_plugin(OVER)  # type: ignore[assignment]
    return lambda processes: judge.see(plugin.steps(case, processes))


@pytest.fixture
def truth(case: Case, observation: Observation, conformance: Conformance, judge: Judge) -> ReferenceTrajectory:
    """The case's truth: the numbers that it must compute."""
    return judge.see(conformance.truths.of(case, observation))


@pytest.fixture
def truth_of(
    case: Case, observation: Observation, conformance: Conformance, judge: Judge
) -> Callable[[Iterable[Batch]], ReferenceTrajectory]:
    """The case's truth on other batches."""
    return lambda batches: judge.see(conformance.truths.of(case, observation, batches))


@pytest.fixture
def evaluation_of(
    case: Case, observation: Observation, conformance: Conformance, judge: Judge
) -> Callable[[Step], Evaluation]:
    """What the truth says of the state after a step, over the evaluation set."""
    return lambda step: judge.see(conformance.truths.evaluation(case, step))


@pytest.fixture
def cases(conformance: Conformance) -> list[Case]:
    """Every case of the implementation."""
    return conformance.cases


@pytest.fixture
def flags(conformance: Conformance) -> dict[str, str]:
    """The compiler flags that the user has set, name to value."""
    return conformance.flags


@pytest.fixture
def flag_problems(conformance: Conformance) -> Callable[[Case], Seen[dict[str, str]]]:
    """What is wrong with each flag, by the train step of a case."""
    return lambda case: conformance.unflagged[case.target].flag_problems(case.id, conformance.flags)


@pytest.fixture
def reading(conformance: Conformance, judge: Judge) -> Reading:
    """What the implementation's data iterators read; the last that was resumed, in a process of its own."""
    seen = judge.see(conformance.observers[conformance.targets[0]].reading())
    with closing(conformance.fresh) as observer:
        return replace(seen, resumed=seen.resumed + judge.see(observer.resumption(seen.streams)))


@pytest.fixture
def course(conformance: Conformance, judge: Judge) -> Course:
    """What the implementation's own loop trains on, and what its runs do that were stopped or killed."""
    return judge.see(follow(conformance))


@pytest.fixture(scope="module")
def lost(request: pytest.FixtureRequest, conformance: Conformance) -> Callable[[Harm], Seen[Lost]]:
    """What becomes of the implementation's several processes when one of them is lost to a signal, or to sleep."""
    module = importlib.import_module(conformance.settings.implementation)
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    hows = [item.callspec.params["how"] for item in here if "how" in item.callspec.params]
    return Losses(module, conformance.settings.environment("cpu"), hows).of


@pytest.fixture
def environments(conformance: Conformance, judge: Judge) -> dict[str, dict[str, Any]]:
    """The environment that the observing processes see, by target."""
    return {target: judge.see(observer.environment()) for target, observer in conformance.observers.items()}
