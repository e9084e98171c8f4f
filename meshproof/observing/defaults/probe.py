"""A probe asks the installed stack what it does where nobody says, and knows what each version answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import jax

from meshproof.observing.versions import admits

ABSENT = "absent"
"""What a probe answers where its version has no such name."""

Package = Literal["jax", "flax", "optax"]

Kind = Literal["value", "draw", "setting", "option", "machine", "promise"]
"""What a function returns; what a stream draws; a setting of JAX, which changes other answers; an option that a trainer
may set on purpose, which changes no number of its own; what a library of this processor returns; or what every release
does, so that one that does not is broken."""

ASKED: dict[Package, str] = {"jax": "0.12.0.1", "flax": "0.12.12", "optax": "0.2.8"}
"""The newest versions that every probe was asked of."""

Known = tuple[str, Any]
"""A specifier of versions, and what they answer, as JSON data."""


class CannotAskError(Exception):
    """This machine lacks what a probe asks, whatever the version."""


@dataclass(frozen=True)
class Probe:
    """What ``look`` answers, as JSON data, in a few words; of which package; and what its versions are known to answer:
    the first specifier that admits one holds."""

    package: Package
    about: str
    look: Callable[[], Any]
    known: tuple[Known, ...]
    kind: Kind = "value"

    def ask(self) -> Any:
        """What this stack answers, also that it raises. Raises `CannotAskError` where it cannot be asked at all."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations, which API-1 tells of the strategies that meet them
            try:
                with nullcontext() if self.kind == "setting" else usual_settings():
                    return self.look()
            except CannotAskError:
                raise
            except Exception as error:
                return f"raises {type(error).__name__}"

    def expected(self, version: str) -> list[Any]:
        """What a version is known to answer, in a list; an empty one where nothing is known of it."""
        return [value for specifier, value in self.known if admits(specifier, version)][:1]

    def judges(self, version: str) -> bool:
        """Whether another answer is a finding, and not only told by `compare`: that of a setting or a draw, on which
        every number depends, that of a promise, and that of a value, but not where the release came after `ASKED`:
        there it is news."""
        known = self.kind == "value" and admits(f"<={ASKED[self.package]}", version)
        return known or self.kind in ("setting", "draw", "promise")


PROBES: dict[str, Probe] = {}
"""Every probe by its name."""


def probe(package: Package, *known: Known, kind: Kind = "value") -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Make a function a probe of its name; its docstring says what it answers."""

    def make(look: Callable[[], Any]) -> Callable[[], Any]:
        PROBES[look.__name__] = Probe(package, look.__doc__ or "", look, known, kind)
        return look

    return make


def first_cpu() -> jax.Device:
    """The first CPU device. Raises `CannotAskError` where JAX was told to use accelerators only."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError as error:
        raise CannotAskError from error


def usual_settings() -> AbstractContextManager[Any]:
    """Settings that change what others answer, as they usually are: one that is flipped is then one finding."""
    stack = ExitStack()
    experimental: Any = jax.experimental
    stack.enter_context(jax.enable_x64(False) if hasattr(jax, "enable_x64") else experimental.disable_x64())
    stack.enter_context(jax.default_matmul_precision("float32"))
    stack.enter_context(jax.threefry_partitionable(True))
    stack.enter_context(jax.default_prng_impl("threefry2x32"))
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    return stack
