"""`meshproof upgrade` and `meshproof bisect`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from meshproof.children import CASE_TIMEOUT, read_seconds
from meshproof.commands.compare import FailOn, read_classes
from meshproof.commands.failing import INTERRUPTED, fail

Selected = Annotated[str, typer.Option("-k", help="As pytest's -k.")]
Target = Annotated[list[str] | None, typer.Option(help="As pytest's --target; repeatable. Compilers are brought.")]
Implementation = Annotated[str | None, typer.Option("--impl", help="As pytest's --impl.")]
Expected = Annotated[list[Path] | None, typer.Option("--expectations", help="As pytest's; repeatable.")]
CaseTimeout = Annotated[str | None, typer.Option(metavar="SECONDS", help="As pytest's --case-timeout.")]
Prereleases = Annotated[bool, typer.Option("--pre", help="Admit pre-releases.")]


def upgrade(
    old: Annotated[str, typer.Option("--from", help="Requirements such as jax==0.10.2,flax==0.12.8, or a venv.")],
    new: Annotated[str, typer.Option("--to", help="The same, of the stack to upgrade to.")],
    select: Selected = "",
    target: Target = None,
    impl: Implementation = None,
    expectations: Expected = None,
    case_timeout: CaseTimeout = None,
    old_python: Annotated[str | None, typer.Option("--from-python", help="A version or a path.")] = None,
    new_python: Annotated[str | None, typer.Option("--to-python", help="A version or a path.")] = None,
    pre: Prereleases = False,
    benchmarks: Annotated[bool, typer.Option("--benchmarks", help="Also time both stacks in turn.")] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also restore the checkpoints of each stack by the other.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder for upgrade.html, upgrade.md and upgrade.json.")] = Path(),
    fail_on: FailOn = "regressed",
) -> None:
    """Can we upgrade? Run the same suites on two stacks, and report what changes.

    Makes an environment for each stack, or uses the one it made before; runs the suites in both; compares; writes
    upgrade.html, upgrade.md and upgrade.json. Exit code 0: nothing regressed. 1: something did. 2: it cannot be told.
    """
    from meshproof.cases import REFERENCE
    from meshproof.comparison.output import write_table
    from meshproof.environments import StackError, open_environment
    from meshproof.files import check_folder_writable
    from meshproof.installation import check_folder
    from meshproof.report.document import ReportError
    from meshproof.targets.packages import compilers
    from meshproof.timing.ab import AbError, paths_of, run_ab
    from meshproof.upgrade.checkpoints import Exchange, exchange_both
    from meshproof.upgrade.progress import show_progress
    from meshproof.upgrade.runs import RunError
    from meshproof.upgrade.upgrading import forget_verdict, judge, next_step, run_both, write_upgrade

    say = partial(typer.echo, err=True)
    try:
        check_folder(Path.cwd())
        classes, chosen, seconds = read_classes(fail_on), selection(select, target, impl), limit(case_timeout)
        check_folder_writable(output, "--output")
        output.mkdir(parents=True, exist_ok=True)
        forget_verdict(output)
        given = ((old, old_python), (new, new_python))
        environments = [open_environment(*each, pre, say, compilers(target or ())) for each in given]
        with show_progress() as show:
            reports = run_both(environments, [*chosen, *expected(expectations)], output, show, seconds)
        times = run_ab(environments, [*paths_of(), *chosen], 40, 2, say, seconds) if benchmarks else []
        exchanged = None
        if checkpoints:
            exchange = Exchange(impl or REFERENCE, select, case_timeout=seconds)
            with TemporaryDirectory(prefix="meshproof-", ignore_cleanup_errors=True) as folder:
                exchanged = exchange_both(exchange, environments, Path(folder), say)
        comparison = judge(reports, times, exchanged)
        told = [*expected(expectations), *(["--case-timeout", case_timeout] if case_timeout else [])]
        advice = next_step(comparison, [*selection("", target, impl), *told], f"{old},{new}")
        paths = write_upgrade(output, reports, comparison, environments, advice)
    except KeyboardInterrupt:
        fail(f"interrupted: there is no verdict; what is in {output} is whole", INTERRUPTED)
    except (ValueError, StackError, RunError, ReportError, AbError, OSError) as error:
        fail(str(error))
    write_table(comparison, typer.echo)
    if advice:
        typer.echo(f"to find the release that brought it: {advice}")
    say(f"written: {', '.join(map(str, paths))}")
    raise typer.Exit(comparison.exit_code(classes))


def bisect(
    good: Annotated[str, typer.Option(help="Releases such as jax==0.9.0,flax==0.12.4.")],
    bad: Annotated[str, typer.Option(help="The same packages, of the stack that changed something.")],
    select: Selected = "",
    clause: Annotated[str | None, typer.Option(help="Only this clause, such as COM-4.")] = None,
    target: Target = None,
    impl: Implementation = None,
    expectations: Expected = None,
    case_timeout: CaseTimeout = None,
    pre: Prereleases = False,
) -> None:
    """Which release of which package brought a change?

    Takes the most serious difference between the two stacks, and halves the releases between them; each step is one run
    of the suites in an environment of its own. Exit code 0: one release is the cause. 2: it is ambiguous, or there is
    no difference. A narrow -k makes it quick.
    """
    from meshproof.environments import Stack, StackError, cache_folder, make_environment, read_requirements
    from meshproof.installation import check_folder, home
    from meshproof.judging.spec import SpecError, read_clauses
    from meshproof.report.document import ReportError
    from meshproof.targets.packages import compilers
    from meshproof.upgrade.bisecting import BisectError, describe, read_pins
    from meshproof.upgrade.bisecting import bisect as find_origin
    from meshproof.upgrade.runs import RunError, run_suites

    say = partial(typer.echo, err=True)
    known: dict[Path, dict[str, Any]] = {}

    def run(pins: Mapping[str, str]) -> dict[str, Any]:
        stack = tuple(f"{name}=={version}" for name, version in pins.items())
        environment = make_environment(Stack((*stack, *brought), prereleases=pre))
        if environment.python not in known:
            say(f"suites on {','.join(stack)}")
            path = cache_folder() / f"bisect-{os.getpid()}.json"
            known[environment.python] = run_suites(environment, chosen, path, case_timeout=seconds)
        return known[environment.python]

    try:
        check_folder(Path.cwd())
        if clause not in (None, *(judged.id for judged in read_clauses(home()))):
            raise ValueError(f"--clause {clause!r}: no test in suites/ judges it; SPEC.md lists all that there are")
        chosen, seconds = [*selection(select, target, impl), *expected(expectations)], limit(case_timeout)
        brought = compilers(target or ())
        old, new = (read_pins(read_requirements(text)) for text in (good, bad))
        origin = find_origin(old, new, run, clause, pre)
    except KeyboardInterrupt:
        fail("interrupted: there is no verdict", INTERRUPTED)
    except (ValueError, SpecError, BisectError, StackError, RunError, ReportError, OSError) as error:
        fail(str(error))
    finally:
        (cache_folder() / f"bisect-{os.getpid()}.json").unlink(missing_ok=True)
    typer.echo(describe(origin, [*chosen, *(["--case-timeout", case_timeout] if case_timeout else [])]))
    raise typer.Exit(0 if origin.certain else 2)


def limit(case_timeout: str | None) -> float:
    """Seconds for a case. Raises `ValueError` for what is no number above 0."""
    return CASE_TIMEOUT if case_timeout is None else read_seconds(case_timeout)


def expected(files: Sequence[Path] | None) -> list[str]:
    """pytest's arguments for these files of expectations."""
    return [word for file in files or () for word in ("--expectations", str(file))]


def selection(select: str, target: Sequence[str] | None, impl: str | None) -> list[str]:
    """pytest's arguments for a selection. Raises `ValueError` for an invalid ``-k``."""
    from meshproof.pytest_plugin import check_selection

    check_selection(select)
    chosen = {"-k": [select] if select else [], "--target": target or [], "--impl": [impl] if impl else []}
    return [word for option, values in chosen.items() for value in values for word in (option, value)]
