"""The trainer on one device. Of several processes each has it on a device of its own, and all see the same."""

from __future__ import annotations

from typing import Any

import jax

from meshproof.observing.compilers import only_devices


def on_one_device(strategy: Any, dtype: str) -> Any:
    """What ``single_device(dtype)`` returns. Raises what it raises.

    It makes its mesh of the first of JAX's devices, which one process has and the others cannot read: over several
    processes it is told those of its own alone, in whatever it does.
    """
    if not jax.distributed.is_initialized():
        return strategy.single_device(dtype)
    return Local(strategy).single_device(dtype)


class Local:
    """An object whose attributes are looked up, and called, as if this process's devices were all that there are."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        with only_devices(jax.local_devices()):
            value = getattr(self.inner, name)
        return Local(value) if callable(value) else value

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the call returns, a trainer as one of these."""
        with only_devices(jax.local_devices()):
            returned = self.inner(*given, **named)
            return Local(returned) if hasattr(returned, "train_step") else returned
