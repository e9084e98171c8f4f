"""Idioms of published programs: healthy ones, each beside its fault."""

from collections.abc import Callable
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from reference_impl.forms.base import OnMesh
from tests.healthy.sharded import COUNTS, FSDP, Explicit
from tests.healthy.trainer import LOSS, Functional, moves
from tests.saboteurs.planting import plant_stranger


class SetsMesh(Explicit):
    """Explicit axes, a mesh that is set around every call, and layouts that JAX finds. It compiles the second step,
    too, if the first was lowered before it was called."""

    name = "healthy_sets_mesh"

    @cached_property
    def init(self) -> Any:
        """There."""
        return OnMesh(self.mesh, super().init)

    @cached_property
    def train_step(self) -> Any:
        """There."""
        return OnMesh(self.mesh, jax.jit(self.update, donate_argnums=0))


class SetsMeshAndRetypes(SetsMesh):
    """The count comes back as another type, so that the second step compiles."""

    name = "sets_mesh_and_retypes"

    def update(self, state: Any, batch: Any) -> Any:
        """A weak type is one."""
        new, metrics = super().update(state, batch)
        return new | {"optimizer": jax.tree.map(retyped, new["optimizer"])}, metrics


class WarmsUp:
    """A step whose first call is another program, told by a count in Python that nothing takes back."""

    def __init__(self, step: Any) -> None:
        self.step, self.calls = (
            jax.jit(lambda state, batch, warm: step(state, batch), donate_argnums=0, static_argnums=2),
            0,
        )

    def lower(self, state: Any, batch: Any) -> Any:
        """Of the first call."""
        return self.step.lower(state, batch, False)

    def __call__(self, state: Any, batch: Any) -> Any:
        """Warm from the second call on."""
        self.calls += 1
        return self.step(state, batch, self.calls > 1)


class CompilesAfterItsFirstCall(Explicit):
    """The second step compiles in the first run of a process, and in no other."""

    name = "compiles_after_its_first_call"

    @cached_property
    def train_step(self) -> Any:
        """By its count."""
        return WarmsUp(self.update)


def retyped(leaf: Any) -> Any:
    """A counter in 16 bits."""
    return leaf.astype(jnp.int16) if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf


class RefersTwice(Functional):
    """A state in which the parameters stand twice, as NNX's own optimizers refer to them; one has one element in three
    dimensions."""

    name = "healthy_refers_twice"
    shapes = Functional.shapes | {"shift": (1, 1, 1)}
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), LOSS)
    refer = staticmethod(lambda parameters: parameters)

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """With the labels moved."""
        return super().mean_loss(w, batch | {"y": batch["y"] + w["shift"].reshape(())})

    def referring(self, state: Any) -> Any:
        """With the parameters once more."""
        return state | {"again": self.refer(state["parameters"])}

    @cached_property
    def init(self) -> Callable[[Any], Any]:
        """Both."""
        made = super().init
        return lambda key: self.referring(made(key))

    @cached_property
    def train_step(self) -> Any:
        """Of what is computed with."""
        return Referring(self, super().train_step)

    def load(self, parameters: Any) -> Any:
        """Both."""
        return self.referring(super().load(parameters))


class Referring:
    """A step whose state says twice where parameters are."""

    def __init__(self, trainer: RefersTwice, jitted: Any) -> None:
        self.trainer, self.jitted = trainer, jitted

    @staticmethod
    def once(state: Any) -> Any:
        """What is computed with."""
        return {name: part for name, part in state.items() if name != "again"}

    def __call__(self, state: Any, batch: Any) -> Any:
        """One update."""
        new, metrics = self.jitted(self.once(state), batch)
        return self.trainer.referring(new), metrics

    def lower(self, state: Any, batch: Any) -> Any:
        """Of its program."""
        return self.jitted.lower(self.once(state), batch)


class DrawsFlat(FSDP):
    """A parameter that every device has whole is drawn as a matrix, as Linen draws heads: of the shape of one that is
    split."""

    name, model = "healthy_draws_flat", "heads"
    optimizer = optax.adamw(1e-2)
    shapes = {"square": (16, 16), "heads": (2, 8, 16)} | Functional.shapes
    stored = gradient = MappingProxyType({"heads": P(), "*": P("data")})
    moments = COUNTS | {"*/heads": P(), "*": P("data")}
    split = (shapes["square"], *Functional.shapes.values())
    forward_moves = (moves("all-gather", "parameters", *split), LOSS)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "gradients", *split),
        moves("all-reduce", "gradients", shapes["heads"]),
    )

    def mean_loss(self, w: Any, batch: Any) -> Any:
        """With both before the hidden layer."""
        w = {name: self.used(name, value) for name, value in w.items()}
        seen = batch["x"] @ w["square"] @ w["heads"].reshape(16, 16)
        return Functional.mean_loss(self, w, batch | {"x": seen})

    def create(self, key: Any) -> Any:
        """The heads by the rows of a matrix."""
        made = super().create(key)["parameters"]
        heads = jax.random.normal(jax.random.fold_in(key, 1), (16, 16)) / 4
        return self.start(made | {"heads": heads.reshape(2, 8, 16)})


class KeepsTwice(RefersTwice):
    """Copies in place of references, which nobody declares."""

    name = "keeps_twice"
    refer = staticmethod(lambda parameters: jax.tree.map(jnp.copy, parameters))


plant_stranger(SetsMesh())
plant_stranger(SetsMeshAndRetypes(), "CMP-1")
plant_stranger(CompilesAfterItsFirstCall(), "CMP-1")
plant_stranger(RefersTwice())
plant_stranger(DrawsFlat())
plant_stranger(KeepsTwice(), "MEM-1", "MEM-2")
