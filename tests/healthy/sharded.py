"""Sharding by annotation: ``pytest suites/ --impl tests.healthy.sharded``."""

from functools import cached_property
from math import prod

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from .language_models import LENGTH, WIDTH, LanguageModel
from .trainer import LOSS, WHOLE, Functional, moves

SHAPES = Functional.shapes
COUNTS = {"*count": P()}


class Zero1(Functional):
    """Moments are split, and each device updates its part of what is then whole again."""

    name = "zero1"
    moments = COUNTS | {"*": P("data")}
    forward_moves = (LOSS,)
    step_moves = (
        moves("all-reduce", "gradients", *SHAPES.values()),
        moves("all-gather", "parameters", *SHAPES.values()),
        LOSS,
    )


class FSDP(Functional):
    """Everything is split, and a parameter is gathered where it is used."""

    name = "fsdp"
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    stored = gradient = {"*": P("data")}
    moments = COUNTS | stored
    in_use = WHOLE
    forward_moves = (moves("all-gather", "parameters", *SHAPES.values()), LOSS)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "gradients", *SHAPES.values()),
        moves("all-reduce", "metrics", (2,)),
    )

    def mean_loss(self, w, batch):
        """Of gathered parameters."""
        return super().mean_loss({name: self.used(name, value) for name, value in w.items()}, batch)

    def used(self, name, value):
        """A parameter as it is computed with."""
        spec = self.in_use.get(name, P())
        return jax.lax.with_sharding_constraint(value, self.on_mesh(*spec))

    def value_and_gradients(self, w, batch):
        """The gradients as they are stored."""
        value, gradients = super().value_and_gradients(w, batch)
        stored = {name: self.on_mesh(*self.contract.spec("gradients", name)) for name in gradients}
        return value, jax.lax.with_sharding_constraint(gradients, stored)


class Lamb(FSDP):
    """A trust ratio of each parameter: two norms, each of which optax takes twice."""

    name = "fsdp_lamb"
    optimizer = optax.lamb(1e-2)
    step_moves = (*FSDP.step_moves[:3], moves("all-reduce", "metrics", (8,)))


class UnitClip(FSDP):
    """Holds each unit's gradient to a share of its weights: two norms of each column, whose rows are split."""

    name = "fsdp_unit_clip"
    optimizer = optax.chain(optax.adaptive_grad_clip(1e-2), optax.adamw(1e-2))
    step_moves = (*FSDP.step_moves[:3], moves("all-reduce", "metrics", (32 + 8,), times=2))


def whitened(decay=0.9):
    """Divides each gradient by one and an average of its columns' products, to first order: half a Shampoo."""

    def init(w):
        return {name: jnp.zeros((leaf.shape[1], leaf.shape[1]), leaf.dtype) for name, leaf in w.items()}

    def update(gradients, products, w=None):
        kept = {name: decay * products[name] + (1 - decay) * g.T @ g for name, g in gradients.items()}
        return {name: g - g @ kept[name] for name, g in gradients.items()}, kept

    return optax.GradientTransformation(init, update)


class Whitened(FSDP):
    """An optimizer with statistics of its own, to which every device adds those of its rows."""

    name = "fsdp_whitened"
    optimizer = optax.chain(whitened(), optax.trace(0.9), optax.scale(-1e-1))
    moments = {"0/*": P(), "*": P("data")}
    step_moves = (*FSDP.step_moves[:3], moves("all-reduce", "statistics", (32, 32), (8, 8)))


class Model(FSDP, LanguageModel):
    """Norms of every parameter, for the clip and for the trust ratio: more scalars than a step has metrics."""

    name = "fsdp_language_model"
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.lamb(1e-2))
    forward_moves = (moves("all-gather", "parameters", *LanguageModel.shapes.values()), LOSS)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "gradients", *LanguageModel.shapes.values()),
        moves("all-reduce", "metrics", (5 * len(LanguageModel.shapes),)),
    )


LAYERS = {"layers": (4, 16, 16), "out": (16, 8)}


class Deep(FSDP):
    """Stacked layers, each gathered in the body of the loop that uses it."""

    name, optimizer = "fsdp_scan", optax.adamw(1e-2)
    shapes = LAYERS
    stored = gradient = {"layers": P(None, "data"), "out": P("data")}
    moments = {f"*{name}": spec for name, spec in stored.items()} | COUNTS
    forward_moves = (moves("all-gather", "parameters", *LAYERS.values()), LOSS)
    step_moves = (*forward_moves, moves("reduce-scatter", "gradients", *LAYERS.values()))

    def mean_loss(self, w, batch):
        """Each layer adds to its input."""
        x, _ = jax.lax.scan(lambda x, layer: (self.layer(layer, x), None), batch["x"], w["layers"])
        return jnp.mean((x @ self.used("out", w["out"]) - batch["y"]) ** 2)

    def layer(self, w, x):
        """One, of gathered parameters."""
        return x + jnp.tanh(x @ self.used("layer", w))


class DeepRecomputed(Deep):
    """The backward pass gathers each layer again, in place of keeping them all."""

    name = "fsdp_scan_remat"
    promises = {"rematerialises": True}
    step_moves = (*Deep.step_moves, moves("all-gather", "parameters", LAYERS["layers"]))

    def layer(self, w, x):
        """Nothing of it is kept."""
        return jax.checkpoint(super().layer)(w, x)


class Explicit(Functional):
    """Sharding in types: the compiler is told of nothing, and JAX says where an array lies."""

    name = "explicit_axes"
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *SHAPES.values()), LOSS)

    @cached_property
    def mesh(self):
        """As ``jax.make_mesh`` makes it today."""
        devices = jax.devices()[: self.mesh_axes["data"]]
        return jax.make_mesh((len(devices),), ("data",), (AxisType.Explicit,), devices=devices)


class Tensor(FSDP):
    """The hidden layer is split, and its two products share one sum; a parameter may be split over data besides."""

    axes = {"data": 2, "model": 4}
    in_use = {"hidden": P(None, "model"), "out": P("model")}
    summed = moves("all-reduce", "activations", (32, 8), over=("model",))
    norms = moves("all-reduce", "metrics", (2,), over=("model",))


class TensorParallel(Tensor):
    """Parameters rest as they are used."""

    name = "tensor_parallel"
    stored = gradient = Tensor.in_use
    moments = {f"*{name}": spec for name, spec in stored.items()} | COUNTS
    forward_moves = (Tensor.summed, LOSS)
    step_moves = (Tensor.summed, moves("all-reduce", "gradients", (16, 8), (8, 8)), Tensor.norms, LOSS)


class FSDPTensor(Tensor):
    """Parameters rest in parts over both axes, and are gathered over one."""

    name = "fsdp_tensor"
    stored = gradient = {"hidden": P("data", "model"), "out": P("model", "data")}
    moments = {f"*{name}": spec for name, spec in stored.items()} | COUNTS
    forward_moves = (moves("all-gather", "parameters", (16, 8), (8, 8)), Tensor.summed, LOSS)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "gradients", (16, 8), (8, 8)),
        Tensor.norms,
        moves("all-reduce", "metrics", (2,)),
    )


HEADWISE = {"qkv": P(None, None, "model"), "attended": P("model"), "up": P(None, "model"), "down": P("model")}


class TensorAttention(LanguageModel):
    """Heads and hidden units are split."""

    name = "tensor_attention"
    axes = {"data": 2, "model": 4}
    stored = gradient = HEADWISE | WHOLE
    moments = {f"*{name}": spec for name, spec in HEADWISE.items()} | WHOLE
    forward_moves = (moves("all-reduce", "activations", (8, LENGTH, WIDTH), over=("model",), times=2), LOSS)

    @property
    def step_moves(self):
        """One activation of each half of the block forward and one backward; of its parameters, a fourth."""
        whole = [shape for name, shape in self.shapes.items() if name not in HEADWISE]
        parts = sum(prod(self.shapes[name]) for name in HEADWISE) // 4
        return (
            moves("all-reduce", "activations", (8, LENGTH, WIDTH), over=("model",), times=4),
            moves("all-reduce", "gradients", *whole, (parts,)),
            moves("all-reduce", "metrics", (len(HEADWISE),), over=("model",)),
            LOSS,
        )


def strategies():
    """All of them."""
    return [
        kind()
        for kind in (
            Zero1,
            FSDP,
            Lamb,
            UnitClip,
            Whitened,
            Model,
            Deep,
            DeepRecomputed,
            Explicit,
            TensorParallel,
            FSDPTensor,
            TensorAttention,
        )
    ]
