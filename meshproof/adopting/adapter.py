"""What an adapter around a user's trainer consists of: plain data, and its Python source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.sharding import PartitionSpec

from meshproof.observing.members import origin

PASSED_ON = (
    "variant", "make_mesh", "init", "batches", "shard_batch", "train_step", "loss", "gradients", "parameters",
    "optimizer_state", "auxiliary", "load", "truth", "evaluate", "schedule", "at_rest", "logical_axes", "lay_out",
    "resolve", "draws", "without_draws", "unchecked_gradients", "model_flops",
)  # fmt: skip
"""Members that an adapter takes over as they are."""


class AdoptError(Exception):
    """A trainer cannot be adopted; the message says what was seen of it, and what was expected."""


def attempt(what: str, call: Any, *arguments: Any) -> Any:
    """What a call to the user's code returns. Raises `AdoptError` with what it raised, and where."""
    try:
        return call(*arguments)
    except Exception as error:
        raise AdoptError(f"{what} raised {type(error).__name__}: {error} ({origin(error)})") from error


@dataclass(frozen=True)
class Adapter:
    """``module`` and ``trainer`` say where the user's object is, ``make`` is the expression that makes a trainer of it.

    ``members`` are the sources of the adapter's members, in their order; ``imports`` what they need. ``computed`` is
    how the trainer says that its parameters are computed with, by path pattern.
    """

    module: str
    trainer: str
    make: str
    name: str
    framework: str
    model: str
    mesh: dict[str, int]
    members: dict[str, str]
    imports: frozenset[str] = frozenset()
    computed: Mapping[str, PartitionSpec] = field(default_factory=dict)

    def source(self) -> str:
        """The adapter's class, whose contract is ``CONTRACT``, and ``strategies()``."""
        passed = [member for member, text in self.members.items() if not text]
        written = [text for text in self.members.values() if text]
        lines = [
            f"class {self.class_name}:",
            f'    name, framework, model = "{self.name}", "{self.framework}", "{self.model}"',
            f"    mesh_axes = {self.mesh!r}".replace("'", '"'),
            "    contract = CONTRACT",
            *(f"    {member} = {_kind(member)}(lambda self: self.trainer.{member})" for member in passed),
            "",
            "    @cached_property",
            "    def trainer(self):",
            f"        return {self.make}",
            *(f"\n{text}" for text in written),
            "",
            "",
            "def strategies():",
            f"    return [{self.class_name}()]",
            "",
        ]
        return "\n".join(lines)

    @property
    def class_name(self) -> str:
        """A class name that is not the trainer's own."""
        return "Adopted"

    def header(self) -> str:
        """The imports of the adapter, without those of a contract."""
        standard, others = ["from functools import cached_property"], sorted({*self.imports, self.imported})
        return "\n".join([*standard, "", *others])

    @property
    def imported(self) -> str:
        """The import of the user's object."""
        name = self.trainer.partition(".")[0]
        return f"from {self.module} import {name}"


def alone_source(trainer: str, mesh: str = "") -> str:
    """The source of ``single_device``; ``mesh`` that of its mesh, where the trainer has none."""
    own = f"        alone.mesh = {mesh}\n" if mesh else ""
    return (
        "    def single_device(self, dtype):\n"
        "        alone = Adopted()\n"
        f"        alone.trainer = {trainer}\n"
        f"{own}"
        "        return alone"
    )


def quiet_source(alone: bool) -> str:
    """The source of ``without_draws``, whose run on one device draws nothing either."""
    own = "        quiet.single_device = lambda dtype: self.single_device(dtype).without_draws()\n" if alone else ""
    return (
        "    def without_draws(self):\n"
        "        quiet = Adopted()\n"
        "        quiet.trainer = self.trainer.without_draws()\n"
        f"{own}"
        "        return quiet"
    )


def trimmed(spec: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the dimensions at its end that are whole."""
    entries = list(spec)
    while entries and not entries[-1]:
        entries.pop()
    return tuple(entries)


def spec_of(dimensions: Iterable[Sequence[str]]) -> tuple[Any, ...]:
    """What a ``PartitionSpec`` has for dimensions that are split over these axes."""
    return trimmed(tuple(None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in dimensions))


def spelled_spec(spec: Iterable[Any]) -> str:
    """A ``PartitionSpec`` as source, where ``P`` is its name."""
    entries = [f'"{each}"' if isinstance(each, str) else _tuple(each) if each else "None" for each in spec]
    while entries and entries[-1] == "None":
        entries.pop()
    return f"P({', '.join(entries)})"


def _kind(member: str) -> str:
    """A property that can be set where the form without draws is told apart by it."""
    return "cached_property" if member in ("variant", "draws") else "property"


def _tuple(axes: Iterable[str]) -> str:
    names = [f'"{axis}"' for axis in axes]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
