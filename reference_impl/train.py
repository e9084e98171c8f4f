"""``python -m reference_impl.train --strategy fsdp --mesh data=8 --model gpt``: the loop around the book's train step.

It stops cleanly on SIGTERM and SIGINT: the step that runs is finished, its state saved, and the exit code is 128 plus
the signal's number. ``--resume`` continues bitwise where the last whole checkpoint was saved, with the next examples:
where the data go on is part of it.

Over several processes (``meshproof launch -n 2 -- python -m reference_impl.train …``) each reads its own rows. SIGTERM
to one of them stops all after the same step; SIGINT ends a process at once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from jax.experimental.multihost_utils import reached_preemption_sync_point
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from reference_impl.forms.base import Form
from reference_impl.lifecycle.choosing import begun, check_options, choose, panels, parse_mesh
from reference_impl.lifecycle.feeding import Feed
from reference_impl.lifecycle.loss_curves import check_losses, check_picture, draw, losses_before, write_losses
from reference_impl.lifecycle.multiprocess import COUNT, join, mark
from reference_impl.lifecycle.run_folder import RunFolder, SaveError
from reference_impl.lifecycle.training_data import Shuffled, fields_for

MOST_DEVICES = 2048
"""Virtual devices of a process: XLA takes those beyond for another process's."""


@dataclass
class Stop:
    """Which signal asked the loop to stop, if any; a second one ends the process at once."""

    number: int = 0

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to SIGTERM and SIGINT, and give them back afterwards."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def ask(number: int, _: Any) -> None:
            self.number = number
            for asked in before:
                signal.signal(asked, signal.SIG_DFL)

        for number in before:
            signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def before(self, step: int) -> bool:
        """Whether to stop before a step. Over several processes JAX listens to SIGTERM, and gives all the same step."""
        if jax.process_count() > 1 and reached_preemption_sync_point(step):
            self.number = signal.SIGTERM
        return bool(self.number)


@dataclass
class Run:
    """A strategy, its data, and what was measured of each step: its loss, and its seconds.

    The seconds of the first step of a process are those of compiling it. Raises ``ValueError`` as `Feed`.
    """

    strategy: Form
    data: Shuffled
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = Feed(self.strategy, self.data)

    def step(self, state: Any, number: int) -> Any:
        """The state after step ``number``, on the next batch; waits for the devices."""
        begun = time.perf_counter()
        batch = self.feed.next()
        mark(number)
        state, metrics = self.strategy.train_step(state, batch)  # type: ignore[attr-defined]
        self.losses.append(float(metrics["loss"].mean()))
        self.seconds.append(time.perf_counter() - begun)
        return state

    def speed(self) -> str:
        """Seconds per step, and tokens or examples per second, since the step was compiled."""
        timed = self.seconds[1:]
        if not timed:
            return "no step timed"
        mean = sum(timed) / len(timed)
        x = self.data.fields["x"]
        count, unit = (x.shape[1], "tokens") if x.dtype.kind == "i" else (1, "examples")
        return f"{mean * 1000:.1f} ms/step, {self.data.batch_size * count / mean:,.0f} {unit}/s"


def train(
    run: Run, state: Any, begin: int, end: int, folder: RunFolder | None, save_every: int, console: Console, stop: Stop
) -> tuple[Any, int]:
    """Train from step ``begin`` to ``end``, or until a signal. The last state is saved; returned with its step.

    Raises `SaveError` after the step in which a save in the background has failed, or at the end.
    """
    columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    number, saved = begin, begin
    bar = Progress(*columns, TextColumn("{task.fields[loss]}"), console=console)
    alone = jax.process_count() == 1  # else one would stop, and the others wait for it in a collective
    with bar as progress, stop.on_signals() if alone else nullcontext(), folder or nullcontext():
        task = progress.add_task("", total=end, completed=begin, epoch=1, loss="")
        while number < end and not stop.before(number):
            state = run.step(state, number)
            number += 1
            if folder:
                folder.look()
            epoch, place = divmod(number, run.data.steps_per_epoch)
            progress.update(task, completed=number, epoch=epoch + bool(place), loss=f"loss {run.losses[-1]:.4f}")
            if not place or number == end:
                first = number - (place or run.data.steps_per_epoch)
                recent = run.losses[max(first, begin) - number :]
                of = f" since step {begin}" if begin > first else ""
                progress.print(f"step {number}: mean loss {sum(recent) / len(recent):.6f}{of}, {run.speed()}")
            if folder and save_every and number % save_every == 0:
                folder.save(run.strategy, state, number, run.feed.data)
                saved = number
        if folder and number > saved:
            folder.save(run.strategy, state, number, run.feed.data)
    return state, number


def bytes_per_device(state: Any) -> int:
    """The bytes of the state that the fullest device holds."""
    held: dict[jax.Device, int] = {}
    for leaf in jax.tree.leaves(state):
        for shard in leaf.addressable_shards:
            held[shard.device] = held.get(shard.device, 0) + shard.data.nbytes
    return max(held.values())


def shardings(state: Any) -> Table:
    """Each array's path, dtype and shape, ``PartitionSpec`` and the shape of its shards."""
    table = Table("dtype", "shape", "PartitionSpec", "shard", "array", box=None)
    table.columns[-1].overflow = "fold"
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        spec = getattr(leaf.sharding, "spec", leaf.sharding)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        table.add_row(str(leaf.dtype), str(leaf.shape), str(spec), str(leaf.sharding.shard_shape(leaf.shape)), name)
    return table


def main(
    context: typer.Context,
    strategy: Annotated[str, typer.Option(help="A page of the book, as fsdp.")] = "data_parallel",
    mesh: Annotated[str, typer.Option(help="Axis sizes, as data=2,model=4; by default the book's.")] = "",
    model: Annotated[str, typer.Option(help="mlp, gpt, …; by default the strategy's first in the book.")] = "",
    framework: Annotated[str, typer.Option(help="jax, nnx, linen.")] = "jax",
    steps: Annotated[int, typer.Option(min=0, help="Total number of steps; 0 means that --epochs says it.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="1, where --steps says nothing.")] = None,
    batch: Annotated[int, typer.Option(min=0, help="Examples of a global batch; 0 means the book's.")] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of the initial state and of the order of the data.")
    ] = 0,
    checkpoints: Annotated[Path | None, typer.Option(help="A folder for checkpoints; the last state is saved.")] = None,
    save_every: Annotated[int, typer.Option(min=0, help="Steps between checkpoints; needs --checkpoints.")] = 0,
    keep: Annotated[int, typer.Option(min=1, help="How many checkpoints stay, the last ones.")] = 3,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")] = False,
    losses: Annotated[
        Path | None, typer.Option(help="Write step, loss and seconds of each step as JSON; --resume adds to them.")
    ] = None,
    visualize: Annotated[bool, typer.Option("--visualize", help="Print the sharding of each array.")] = False,
    compare: Annotated[
        Path | None, typer.Option(help="Train every strategy, or all that take --model, and draw their losses there.")
    ] = None,
) -> None:
    """Train a strategy of the book on text or on a synthetic regression."""
    console, stop = Console(highlight=False), Stop()
    try:
        check_options(context)
        if compare:
            return draw_all(model, framework, steps, epochs or 1, batch, seed, compare, console)
        if COUNT in os.environ:
            join()
        axes = parse_mesh(mesh) if mesh else None
        form = choose(strategy, framework, model, axes, batch)
        use_devices(prod(form.mesh_axes.values()), exact=axes is not None)
        console.quiet = jax.process_index() > 0
        run = Run(form, Shuffled(fields_for(form.network), form.batch_size, seed))
        form.check_divides(run.data.batch(0))
        end = steps or (epochs or 1) * run.data.steps_per_epoch
        if losses:
            check_losses(losses, checkpoints)
        settings = {"model": form.model, "batch": form.batch_size, "seed": seed}
        folder = RunFolder.open(checkpoints, keep, settings, resume)
        if folder and resume:
            begin, state = folder.restore(form, run.feed.data)
        else:
            begin, state = 0, form.init(jax.random.key(seed))  # type: ignore[attr-defined]
        if begin > end:
            raise ValueError(f"the checkpoint is of step {begin}: expected --steps of at least that, saw {end}")
        before = losses_before(losses, begin) if losses and begin < end else {}
    except (ValueError, OSError) as error:
        tell(console, error)
        raise typer.Exit(2) from None
    shape = ", ".join(f"{axis}={size}" for axis, size in form.mesh_axes.items())
    console.print(
        f"{form.name} ({form.framework}) on {shape}: {form.model}, {run.data.examples} examples, steps {begin} to {end}"
    )
    console.print(f"state per device: {bytes_per_device(state):,} bytes")
    if visualize:
        console.print(shardings(state))
    number, failed = begin, False
    try:
        if begin == end:
            console.print(f"nothing is trained: the run has all its {end} steps; --steps or --epochs of more go on")
        else:
            state, number = train(run, state, begin, end, folder, save_every, console, stop)
    except (SaveError, OSError) as error:
        failed = True
        tell(console, error)
    finally:
        if losses and run.losses and jax.process_index() == 0:
            try:
                write_losses(losses, before, run.losses, run.seconds)
            except OSError as error:
                failed = True
                tell(console, f"--losses {losses} is not written: {error.strerror}")
    if failed:
        raise typer.Exit(1)
    if stop.number:
        kept = f"step {number} is saved; --resume continues" if folder else "nothing is saved without --checkpoints"
        console.print(f"stopped by {signal.Signals(stop.number).name}: {kept}")
        raise typer.Exit(128 + stop.number)


def tell(console: Console, error: object) -> None:
    """Print an error in one line."""
    console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)


def draw_all(
    model: str, framework: str, steps: int, epochs: int, batch: int, seed: int, path: Path, console: Console
) -> None:
    """The `panels` of the book, each page on the mesh that the book has for it, from the same start and examples.

    Raises ``ValueError`` as `check_picture` and `panels`.
    """
    check_picture(path)
    compared = panels(framework, model, batch)
    use_devices(max(prod(form.mesh_axes.values()) for forms in compared.values() for form in forms.values()), False)
    curves: dict[str, dict[str, list[float]]] = {}
    for title, forms in compared.items():
        curves[title] = {}
        for page, form in forms.items():
            run = Run(form, Shuffled(fields_for(form.network), form.batch_size, seed))
            console.print(f"{page}: {title}")
            end, stop = steps or epochs * run.data.steps_per_epoch, Stop()
            train(run, begun(form, seed), 0, end, None, 0, console, stop)
            if stop.number:
                raise typer.Exit(128 + stop.number)
            curves[title][page] = run.losses
    draw(curves, path)
    console.print(f"written: {path}")


def use_devices(needed: int, exact: bool) -> None:
    """As many CPU devices as the mesh has, unless their number was set before.

    Raises ``ValueError`` where a mesh that the user named is of another number of devices than there are, or of more
    than XLA makes.
    """
    if needed > MOST_DEVICES and exact:
        raise ValueError(f"--mesh is of {needed:,} devices: expected at most {MOST_DEVICES:,}")
    if jax.config.jax_num_cpu_devices < 1:  # type: ignore[attr-defined]
        jax.config.update("jax_num_cpu_devices", max(1, needed // int(os.environ.get(COUNT, 1))))
    if exact and needed != jax.device_count():
        raise ValueError(f"--mesh is of {needed} devices, JAX has {jax.device_count()}: expected all of them")


if __name__ == "__main__":
    typer.run(main)
