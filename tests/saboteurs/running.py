"""Faults in how the step runs: donation, compilation, the host, the process."""

from __future__ import annotations

import os
import signal
import warnings
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import TrainState
from reference_impl.strategies import (
    data_parallel,
)
from tests.saboteurs.planting import DATA, plant


class KeepsState(JaxForm):
    """A step that does not donate, and so holds two states."""

    @cached_property
    def train_step(self) -> Any:
        """Without ``donate_argnums``."""
        return self.compile(self.step, out_shardings=(self.on_mesh(self.state_specs), None))


class WeakAtFirst(JaxForm):
    """A state that comes back with another type than it went in with."""

    def load(self, parameters: Any) -> Any:
        """A weakly typed momentum; the step returns a strongly typed one."""
        state = super().load(parameters)
        weak = jax.tree.map(lambda m: jax.device_put(jnp.full(m.shape, 0.0), m.sharding), state.optimizer)
        return TrainState(state.parameters, weak)


class WeakWhenMade(JaxForm):
    """Makes its biases of a Python number, in `init` alone: a restored state, and a loaded one, has them right."""

    def init(self, key: Any) -> Any:
        """Trained from, it compiles the step again."""
        state = super().init(key)
        weak = {
            name: layer | {"bias": jax.device_put(jnp.full(layer["bias"].shape, 0.0), layer["bias"].sharding)}
            for name, layer in state.parameters.items()
        }
        return state._replace(parameters=weak)


class CallsBack(JaxForm):
    """A step that tells the host how it is doing."""

    def step(self, state: Any, batch: Any) -> Any:
        """And waits for it."""
        state, metrics = super().step(state, batch)
        jax.debug.callback(lambda loss: None, metrics["loss"])
        return state, metrics


class Promotes(JaxForm):
    """A forward pass that widens bf16 without being told to."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """bf16 · f32 → f32."""
        return super().forward(parameters, batch) + 0 * jnp.sum(jnp.ones(2, jnp.bfloat16) * jnp.ones(2, jnp.float32))


class NarrowBeside(JaxForm):
    """A penalty that is computed in bfloat16, and whose weight is still 0."""

    def forward(self, parameters: Any, batch: Any) -> Any:
        """Nothing changes, today."""
        narrow = jax.tree.leaves(parameters)[0].astype(jnp.bfloat16)
        return super().forward(parameters, batch) + 0 * jnp.sum((narrow * narrow).astype(jnp.float32))


class FeedsFromHost(JaxForm):
    """A step that is handed a host array every time."""

    @cached_property
    def train_step(self) -> Any:
        """A scale of the inputs comes along as NumPy."""

        def scaled_step(state: Any, batch: Any, scale: Any) -> Any:
            return self.step(state, dict(batch) | {"x": batch["x"] * scale})

        scaled = self.compile(scaled_step, donate_argnums=0, out_shardings=(self.on_mesh(self.state_specs), None))
        step = super().train_step

        class Step:
            lower = staticmethod(step.lower)

            def __call__(self, state: Any, batch: Any) -> Any:
                return scaled(state, batch, np.ones(1, np.float32))

        return Step()


class Uncounted(JaxForm):
    """A compiler that keeps its FLOPs to itself."""

    @cached_property
    def train_step(self) -> Any:
        """The cost analysis is empty."""
        step = super().train_step

        class Step:
            __call__ = staticmethod(step)

            def lower(self, *arguments: Any) -> Any:
                compiled = step.lower(*arguments).compile()
                silent = SimpleNamespace(
                    as_text=compiled.as_text, memory_analysis=compiled.memory_analysis, cost_analysis=dict
                )
                return SimpleNamespace(compile=lambda: silent)

        return Step()


class Deprecated(JaxForm):
    """A trainer whose framework announces that it will not go on like this."""

    category: type[Warning] = DeprecationWarning

    def load(self, parameters: Any) -> Any:
        """As flax.jax_utils.replicate did before Flax 0.12.7."""
        told = "jax.device_put_replicated is deprecated; use jax.device_put instead."
        warnings.warn(told, self.category, stacklevel=2)
        return super().load(parameters)


class VisiblyDeprecated(Deprecated):
    """By a class of warnings that is no Python's own."""

    category = np.exceptions.VisibleDeprecationWarning


class Crashes(JaxForm):
    """Takes its process down, as the CPU backend of jaxlib 0.10.2 does on some programs."""

    def load(self, parameters: Any) -> Any:
        """SIGSEGV."""
        os.kill(os.getpid(), signal.SIGSEGV)


plant("state_kept", KeepsState, data_parallel.PAGE, DATA, "MEM-2")
plant("second_step_compiles", WeakAtFirst, data_parallel.PAGE, DATA, "CMP-1")
plant("init_of_a_weak_type", WeakWhenMade, data_parallel.PAGE, DATA, "CMP-1")
plant("host_callback", CallsBack, data_parallel.PAGE, DATA, "CMP-2")
plant("implicit_promotion", Promotes, data_parallel.PAGE, DATA, "CMP-2")
plant("narrow_beside", NarrowBeside, data_parallel.PAGE, DATA, "MIX-2")
plant("fed_from_host", FeedsFromHost, data_parallel.PAGE, DATA, "CMP-2")
plant("flops_not_counted", Uncounted, data_parallel.PAGE, DATA, "CMP-3")
plant("deprecated", Deprecated, data_parallel.PAGE, DATA, "API-1")
plant("deprecated_visibly", VisiblyDeprecated, data_parallel.PAGE, DATA, "API-1")
plant("crash", Crashes, data_parallel.PAGE, DATA, "RUN-1")
