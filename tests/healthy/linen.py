"""Linen with logical axes and ``TrainState``: ``pytest suites/ --impl tests.healthy.linen``."""

from functools import cached_property

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, Trainer, by_path, moves

RULES = (("batch", "data"), ("mlp", "model"), ("embed", None))


class Network(nn.Module):
    """One hidden layer, whose units are split."""

    mesh: jax.sharding.Mesh

    @nn.compact
    def __call__(self, x):
        """Of (rows, 16)."""
        kernel, bias = nn.initializers.lecun_normal(), nn.initializers.zeros
        split, whole = nn.with_logical_partitioning, nn.with_logical_constraint
        x = nn.Dense(32, kernel_init=split(kernel, ("embed", "mlp")), bias_init=split(bias, ("mlp",)))(x)
        x = whole(nn.gelu(x), ("batch", "mlp"), rules=RULES, mesh=self.mesh)
        x = nn.Dense(8, kernel_init=split(kernel, ("mlp", "embed")), bias_init=split(bias, ("embed",)))(x)
        return whole(x, ("batch", "embed"), rules=RULES, mesh=self.mesh)


class LogicalAxes(Trainer):
    """Data and tensor parallelism by rules from logical axes to mesh axes."""

    name, framework = "logical_axes", "linen"
    axes = {"data": 2, "model": 4}
    stored = gradient = {
        "Dense_0/kernel": P(None, "model"),
        "Dense_0/bias": P("model"),
        "Dense_1/kernel": P("model"),
        "Dense_1/bias": P(),
    }
    moments = {f"*{path}": spec for path, spec in stored.items()} | {"*count": P()}
    forward_moves = (moves("all-reduce", "activations", (32, 8), over=("model",)), LOSS)
    step_moves = (
        *forward_moves,
        moves("all-reduce", "gradients", (16, 8), (8,), (8, 8), (8,)),
    )
    optimizer = optax.adamw(1e-2)

    def __init__(self, axes=None, seed=0):
        super().__init__(axes, seed)
        self.train_step = jax.jit(self.update, donate_argnums=0)
        self.loss = jax.jit(lambda state, batch: self.mean_loss(state.params, state, batch))
        self.gradients = jax.jit(lambda state, batch: nn.unbox(jax.grad(self.mean_loss)(state.params, state, batch)))

    @cached_property
    def network(self):
        """On the mesh."""
        return Network(self.mesh)

    def mean_loss(self, parameters, state, batch):
        """Of the global batch."""
        return jnp.mean((state.apply_fn({"params": parameters}, batch["x"]) - batch["y"]) ** 2)

    def update(self, state, batch):
        """One step."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state.params, state, batch)
        return state.apply_gradients(grads=gradients), {"loss": value}

    def create(self, key):
        """A state whose leaves have logical names."""
        variables = self.network.init(key, jnp.zeros((1, 16)))
        return TrainState.create(apply_fn=self.network.apply, params=variables["params"], tx=self.optimizer)

    @cached_property
    def layouts(self):
        """The sharding of every leaf."""
        abstract = jax.eval_shape(self.create, jax.random.key(0))
        return nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), self.mesh, RULES)

    @cached_property
    def init(self):
        """Sharded as it is made."""
        return jax.jit(self.create, out_shardings=self.layouts)

    def load(self, parameters):
        """These values in a new state."""
        boxed = nn.meta.replace_boxed(self.init(jax.random.key(0)).params, jax.tree.map(jnp.asarray, parameters))
        state = TrainState.create(apply_fn=self.network.apply, params=boxed, tx=self.optimizer)
        return jax.device_put(state, self.layouts)

    def parameters(self, state):
        """Without the names of their axes."""
        return nn.unbox(state.params)

    def optimizer_state(self, state):
        """All that optax keeps."""
        return by_path(nn.unbox(state.opt_state))


class Transformer(nn.Module):
    """One block with flax's own attention, biases included."""

    @nn.compact
    def __call__(self, tokens):
        """Logits of (rows, 8) tokens."""
        x = nn.Embed(16, 16)(tokens)
        mask = nn.make_causal_mask(tokens, dtype=bool)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
        x = x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))
        return nn.Dense(16)(x)


class Attention(Trainer):
    """Plain data parallelism with ``TrainState``."""

    name, framework, model = "train_state", "linen", "gpt"
    forward_moves = (LOSS,)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    network, example = Transformer(), np.zeros((1, 8), int)

    def __init__(self, axes=None, seed=0):
        super().__init__(axes, seed)
        self.train_step = jax.jit(self.update, donate_argnums=0)
        self.loss = jax.jit(lambda state, batch: self.mean_loss(state.params, state, batch))
        self.gradients = jax.jit(lambda state, batch: jax.grad(self.mean_loss)(state.params, state, batch))

    @cached_property
    def step_moves(self):
        """Every gradient once."""
        shapes = jax.eval_shape(self.network.init, jax.random.key(0), self.example)
        return (moves("all-reduce", "gradients", *(leaf.shape for leaf in jax.tree.leaves(shapes))), LOSS)

    def batch(self, draws):
        """16 rows of tokens, and of those that follow."""
        tokens = draws.integers(0, 16, size=(16, 9))
        return {"tokens": tokens[:, :-1], "next": tokens[:, 1:]}

    def mean_loss(self, parameters, state, batch):
        """Over tokens."""
        logits = state.apply_fn({"params": parameters}, batch["tokens"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["next"]).mean()

    def update(self, state, batch):
        """One step."""
        value, gradients = jax.value_and_grad(self.mean_loss)(state.params, state, batch)
        return state.apply_gradients(grads=gradients), {"loss": value}

    def init(self, key):
        """Whole on every device."""
        return self.load(self.network.init(key, self.example)["params"])

    def load(self, parameters):
        """These values in a new state."""
        parameters = jax.tree.map(jnp.asarray, parameters)
        state = TrainState.create(apply_fn=self.network.apply, params=parameters, tx=self.optimizer)
        return jax.device_put(state, self.on_mesh())

    def parameters(self, state):
        """By name."""
        return state.params

    def optimizer_state(self, state):
        """All that optax keeps."""
        return by_path(state.opt_state)


class Layer(nn.Module):
    """A residual layer, in the form that ``nn.scan`` takes."""

    @nn.compact
    def __call__(self, x, _):
        """Of (rows, 16)."""
        return x + nn.Dense(16)(nn.silu(nn.RMSNorm()(x))), None


class Deep(nn.Module):
    """Three layers in one array of each name, each recomputed in the backward pass."""

    @nn.compact
    def __call__(self, x):
        """Of (rows, 16)."""
        stacked = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return nn.Dense(8)(stacked()(x, None)[0])


class Scanned(Attention):
    """``nn.scan`` over ``nn.remat``."""

    name, model = "scan_remat", "mlp"
    network, optimizer = Deep(), optax.adamw(1e-2)
    promises = {"rematerialises": True}
    example = np.zeros((1, 16), np.float32)

    batch = Trainer.batch

    def mean_loss(self, parameters, state, batch):
        """Of the global batch."""
        return jnp.mean((state.apply_fn({"params": parameters}, batch["x"]) - batch["y"]) ** 2)


def strategies():
    """All of them."""
    return [LogicalAxes(), Attention(), Scanned()]
