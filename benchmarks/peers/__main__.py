"""``python -m benchmarks.peers --size gpt2-124m``: the book's step beside the same model in PyTorch, in one run."""

from __future__ import annotations

import json
import shlex
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from meshproof.files import replace_text
from meshproof.targets import HOST
from meshproof.timing.ratios import ROUNDS

from ..host import HostError, accelerators
from .gpt_case import PEERS
from .measure import measure
from .page import summarise
from .processes import PeerError

Size = StrEnum("Size", {size: size for size in PEERS})
Target = StrEnum("Target", {target: target for target in HOST})


def main(
    size: Annotated[Size, typer.Option(help="The transformer of this size, on one device.")],
    target: Annotated[Target | None, typer.Option(help="Default: native where there is an accelerator.")] = None,
    rounds: Annotated[int, typer.Option(min=ROUNDS, help="Windows of each framework in each process.")] = 20,
    sessions: Annotated[int, typer.Option(min=1, help="Pairs of fresh processes.")] = 3,
    output: Annotated[Path | None, typer.Option(help="Write the result there, as JSON.")] = None,
) -> None:
    """Measure a size in JAX and in PyTorch: the same model, start, batches, dtype and Adam, in turn."""
    try:
        if output and not output.parent.is_dir():
            raise PeerError(f"--output {output}: there is no folder {output.parent}; make it, or name another")
        result = measure(
            size.value, settle(target and target.value), rounds, sessions, say=lambda line: typer.echo(line, err=True)
        )
    except (HostError, PeerError) as error:
        typer.echo(f"benchmarks.peers: {error}", err=True)
        raise typer.Exit(2) from error
    result = {"command": shlex.join([Path(sys.executable).name, "-m", "benchmarks.peers", *sys.argv[1:]]), **result}
    if output:
        replace_text(output, json.dumps(result, indent=1) + "\n")
    typer.echo(summarise(result))


def settle(target: str | None) -> str:
    """What is measured. Raises `PeerError` without PyTorch, and where an accelerator is asked for and there is none."""
    if find_spec("torch") is None:
        raise PeerError("PyTorch is not installed; `pip install 'meshproof[peers]'` in this environment")
    found = accelerators()
    target = target or ("native" if found.count else "cpu")
    if target == "native" and not found.count:
        raise PeerError("--target native: JAX finds no accelerator on this host; --target cpu compares on its CPU")
    if target == "native" and found.platform != "gpu":
        raise PeerError(f"--target native: JAX finds {found.kind}, a {found.platform}; the peer runs on CUDA or a CPU")
    return target


if __name__ == "__main__":
    typer.run(main)
