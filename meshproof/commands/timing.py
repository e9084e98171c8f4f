"""`meshproof ab` and `meshproof baseline`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from meshproof.children import CASE_TIMEOUT, read_seconds
from meshproof.commands.failing import INTERRUPTED, fail

baseline = typer.Typer(
    no_args_is_help=True, help="The runs that `pytest benchmarks/ --benchmark-compare` compares with."
)


def ab(
    old: Annotated[str, typer.Option("--from", help="Requirements such as jax==0.10.2,flax==0.12.8, or a venv.")],
    new: Annotated[str, typer.Option("--to", help="The same of the other stack.")],
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH…]", help="Default: all of benchmarks/.")] = None,
    select: Annotated[str, typer.Option("-k", help="As pytest's -k.")] = "",
    old_python: Annotated[str | None, typer.Option("--from-python", help="A version or a path.")] = None,
    new_python: Annotated[str | None, typer.Option("--to-python", help="A version or a path.")] = None,
    pre: Annotated[bool, typer.Option("--pre", help="Admit pre-releases.")] = False,
    rounds: Annotated[int, typer.Option(min=8, help="Rounds of each benchmark in each process.")] = 40,
    sessions: Annotated[
        int, typer.Option(min=1, help="Pairs of fresh processes; slower and faster need 3 times as many.")
    ] = 2,
    target: Annotated[str | None, typer.Option(help="As pytest's --target.")] = None,
    impl: Annotated[str | None, typer.Option(help="As pytest's --impl.")] = None,
    size: Annotated[str | None, typer.Option(help="As pytest benchmarks/ --size.")] = None,
    case_timeout: Annotated[
        str, typer.Option(metavar="SECONDS", help="A side that says nothing for longer is given up.")
    ] = f"{CASE_TIMEOUT:g}",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every round to this file.")] = None,
) -> None:
    """Time two stacks in turn on this machine: is one of them slower?

    One process in each environment runs the same benchmarks, round by round in the order A B B A, so that whatever
    slows the machine slows both. Exit code 1: a benchmark is slower, failed, or is on one side only.
    """
    from meshproof.environments import StackError, open_environment
    from meshproof.files import check_apart, check_json, check_writable, replace_text
    from meshproof.timing.ab import AbError, as_json, paths_of, run_ab
    from meshproof.timing.summary import write_comparisons

    say = partial(typer.echo, err=True)
    try:
        seconds = read_seconds(case_timeout)
        if json_file:
            check_writable(json_file, "--json")
            check_apart({"--json": json_file}, [Path(path.partition("::")[0]) for path in paths or ()])
            check_json(json_file, "--json")
        environments = [open_environment(*each, pre, say) for each in ((old, old_python), (new, new_python))]
        options = {"-k": select, "--target": target, "--impl": impl, "--size": size}
        given = [word for option, value in options.items() if value for word in (option, value)]
        found = run_ab(environments, [*paths_of(paths), *given], rounds, sessions, say, seconds)
    except KeyboardInterrupt:
        fail("interrupted: there is no verdict", INTERRUPTED)
    except (StackError, AbError, ValueError, OSError) as error:
        fail(str(error))
    comparisons = [each.comparison for each in found]
    write_comparisons(comparisons, typer.echo, "use more --rounds, or a quieter machine")
    if json_file:
        replace_text(json_file, json.dumps(as_json(environments, found), indent=1))
    raise typer.Exit(any(comparison.failed for comparison in comparisons))


@baseline.command()
def promote(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN.json…", help="Saved by pytest benchmarks/.")],
    folder: Annotated[Path, typer.Option(help="Folder of the baselines.")] = Path("benchmarks/baselines"),
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Accept this obstacle, as the refusal names it; repeatable."),
    ] = None,
) -> None:
    """Make a run, or several of the same code, the baseline of the machine it was timed on.

    Refused if a test failed or the run did not finish and, unless accepted by name, if it is worse than the current
    baseline. Give three runs: they show how much times differ from run to run on this machine. A baseline of one run
    gives false alarms.
    """
    from meshproof.files import check_folder_writable
    from meshproof.timing.baselines import promote as make_baseline
    from meshproof.timing.baselines import read_baseline

    try:
        check_folder_writable(folder, "--folder")
        made = read_baseline(make_baseline(runs, folder, accept or ()))
    except (ValueError, OSError) as error:
        fail(str(error))
    typer.echo(f"{made.path} is now the baseline {made.reach}")


@baseline.command()
def show(folder: Annotated[Path, typer.Option(help="Folder of the baselines.")] = Path("benchmarks/baselines")) -> None:
    """Print each baseline: its machine, its stack, and the time of every benchmark in every run."""
    from meshproof.timing.baselines import read_baselines
    from meshproof.timing.runs import RunError
    from meshproof.timing.summary import write_baseline

    try:
        found = read_baselines(folder)
        for each in found:
            write_baseline(each, typer.echo)
    except RunError as error:
        fail(str(error))
    if not found:
        fail(f"there is no baseline in {folder}; `meshproof baseline promote RUN.json` makes one")
