"""`meshproof adopt`: writes the contract of a trainer by what was seen of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meshproof.children import CASE_TIMEOUT
from meshproof.commands.failing import fail


def adopt(
    trainer: Annotated[
        str, typer.Argument(metavar="MODULE:OBJECT", help="A trainer, or a class or function that makes one.")
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The module to write; default: MODULE_meshproof.py here.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Replace a file that differs.")] = False,
    devices: Annotated[int, typer.Option(min=1, help="Virtual CPU devices.")] = 8,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The longest that it may take.")] = CASE_TIMEOUT,
) -> None:
    """Write an adapter of a trainer, with the contract that it keeps, for `meshproof check --impl`.

    Needed are a state or `init`, a jitted `train_step`, and a batch or `batches`. It is run on virtual CPU devices, in
    a process of its own. What looks wrong is not promised: it is a question, in a comment beside and at the end here.
    A file that is there and differs is left as it is, and the difference printed; `--write` replaces it.
    Exit code 0: the file is as seen. 1: it differs. 2: the trainer cannot be adopted.
    """
    from meshproof.adopting.adapter import AdoptError
    from meshproof.adopting.process import adoption
    from meshproof.adopting.writing import changes, render
    from meshproof.files import check_writable, replace_text

    path = output or Path(f"{trainer.partition(':')[0].rpartition('.')[2]}_meshproof.py")
    if path.suffix != ".py" or not path.stem.isidentifier():
        fail(f"{path}: expected the file of a module, as in my_trainer_meshproof.py")
    sys.path.insert(0, str(Path.cwd()))
    try:
        check_writable(path)
        found = adoption(trainer, devices, timeout)
        text = render(found, module_name(path))
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if before is None or write:
            replace_text(path, text)
    except (AdoptError, ValueError, OSError) as error:
        fail(str(error))
    if before not in (None, text):
        typer.echo("\n".join(changes(before, text)))
    if before is None or write:
        typer.echo(f"written: {path}")
    else:
        typer.echo(f"{path}: {'as seen' if before == text else 'differs from what was seen; --write replaces it'}")
    for question in found.questions:
        typer.echo(f"? {question.about}: {question.text}")
    raise typer.Exit(0 if write or before in (None, text) else 1)


def module_name(path: Path) -> str:
    """The name under which a file is imported from the current folder; of a file elsewhere from its own."""
    absolute, here = path.absolute(), Path.cwd()
    return ".".join(absolute.relative_to(here).with_suffix("").parts) if here in absolute.parents else path.stem
