"""Products, and moments, of values that are rounded to 8 bits: ``pytest suites/ --impl tests.healthy.eight_bits``."""

from functools import cached_property

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.linen.fp8_ops import OVERWRITE_WITH_GRADIENT, Fp8DirectDotGeneralOp

from .recipes import DataParallel
from .trainer import LOSS, WHOLE, Functional, moves


class Network(nn.Module):
    """Two layers in bfloat16 whose products take in 8 bits."""

    product: type

    @nn.compact
    def __call__(self, x):
        """Of (rows, 16)."""
        like = {"use_bias": False, "dtype": jnp.bfloat16, "dot_general_cls": self.product}
        return nn.Dense(8, **like)(nn.gelu(nn.Dense(32, **like)(x)))


class Scaled(Functional):
    """Delayed scaling: a scale is made of the largest values of the steps before, which the gradient hands on."""

    name, framework = "eight_bit_products", "linen"
    product = Fp8DirectDotGeneralOp
    shapes = {"Dense_0/kernel": (16, 32), "Dense_1/kernel": (32, 8)}
    promises = {"auxiliary": WHOLE, "compute_dtype": "bfloat16", "quantised": ("float8_e4m3fn", "float8_e5m2")}
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), LOSS, moves("all-reduce", "metrics", (4,)))

    @cached_property
    def network(self):
        """By the kind of product."""
        return Network(self.product)

    def mean_loss(self, w, batch, scales):
        """Summed in float32."""
        out = self.network.apply({"params": w, OVERWRITE_WITH_GRADIENT: scales}, batch["x"])
        return jnp.mean((out.astype(jnp.float32) - batch["y"]) ** 2)

    def value_and_gradients(self, w, batch, scales):
        """Of parameters and of scales."""
        return jax.value_and_grad(self.mean_loss, argnums=(0, 2))(w, batch, scales)

    def update(self, state, batch):
        """The gradients of scales are the next scales."""
        value, (gradients, scales) = self.value_and_gradients(state["parameters"], batch, state["auxiliary"])
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], updates)
        return {"parameters": parameters, "optimizer": optimizer, "auxiliary": scales}, {"loss": value}

    def create(self, key):
        """As Linen draws."""
        return self.start(self.network.init(key, jnp.zeros((1, 16)))["params"])

    def start(self, parameters):
        """No value has been seen."""
        scales = self.network.init(jax.random.key(0), jnp.zeros((1, 16)))[OVERWRITE_WITH_GRADIENT]
        return super().start(parameters) | {"auxiliary": scales}

    @cached_property
    def loss(self):
        """The forward pass."""
        return jax.jit(lambda state, batch: self.mean_loss(state["parameters"], batch, state["auxiliary"]))

    @cached_property
    def gradients(self):
        """Of the parameters."""
        return jax.jit(lambda state, batch: jax.grad(self.mean_loss)(state["parameters"], batch, state["auxiliary"]))

    def auxiliary(self, state):
        """Scales, and the largest values."""
        return state["auxiliary"]


def rounded_trace(decay=0.9):
    """Momentum that is kept in whole numbers of 8 bits, with a scale for each row."""

    def init(w):
        kept = {"q": jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int8), w)}
        return kept | {"scale": jax.tree.map(lambda leaf: jnp.zeros((leaf.shape[0], 1), leaf.dtype), w)}

    def update(gradients, kept, w=None):
        moved = jax.tree.map(lambda g, q, by: g + decay * q * by, gradients, kept["q"], kept["scale"])
        scale = jax.tree.map(lambda m: jnp.abs(m).max(1, keepdims=True) / 127, moved)
        q = jax.tree.map(lambda m, by: jnp.round(m / jnp.maximum(by, 1e-30)).astype(jnp.int8), moved, scale)
        return moved, {"q": q, "scale": scale}

    return optax.GradientTransformation(init, update)


class Momentum(DataParallel):
    """SGD with such momentum."""

    name = "eight_bit_momentum"
    optimizer = optax.chain(rounded_trace(), optax.scale(-1e-2))
    promises = {"dtypes": {"optimizer_state/0/q/*": "int8"}}


def strategies():
    """Both."""
    return [Scaled(), Momentum()]
