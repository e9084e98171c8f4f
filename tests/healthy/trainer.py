"""What the trainers of the zoo share: a mesh, batches by seed, layouts by name, and their own run on one device."""

from functools import cached_property
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Communication, Contract, leaves, nest


def moves(operation, payload, *shapes, over=("data",), times=1):
    """A line of a budget: float32 arrays of these shapes."""
    return Communication(operation, over, payload, 4 * times * sum(prod(shape) for shape in shapes))


def named(path):
    """A path of JAX in words: ``layers/0/weight``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def by_path(tree):
    """Every array of a tree, in dicts by its path."""
    return nest({named(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)})


def filled(tree, values):
    """A tree with the arrays that `by_path` made of one like it."""
    flat = dict(leaves(values))
    return jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(flat[named(path)]), tree)


LOSS = moves("all-reduce", "metrics", ())
WHOLE = {"*": P()}


class Trainer:
    """Names, mesh, data and promises. A subclass brings state and step."""

    framework, model = "jax", "mlp"
    axes = {"data": 8}
    rows = P("data")
    stored = gradient = moments = WHOLE
    promises = {}
    forward_moves = step_moves = ()

    def __init__(self, axes=None, seed=0):
        self.mesh_axes, self.seed = axes or self.axes, seed

    @property
    def contract(self):
        """Layouts, and what moves."""
        moved = {"forward": self.forward_moves, "step": self.step_moves}
        return Contract(self.stored, self.gradient, self.moments, {"*": self.rows}, **moved, **self.promises)

    @cached_property
    def mesh(self):
        """Of the first devices."""
        sizes = tuple(self.mesh_axes.values())
        return Mesh(np.array(jax.devices()[: prod(sizes)]).reshape(sizes), tuple(self.mesh_axes))

    def on_mesh(self, *spec):
        """A sharding."""
        return NamedSharding(self.mesh, P(*spec))

    def batches(self, count):
        """By seed."""
        draws = np.random.default_rng(self.seed)
        return [self.batch(draws) for _ in range(count)]

    def batch(self, draws):
        """64 rows to fit."""
        return {"x": draws.normal(size=(64, 16)), "y": draws.normal(size=(64, 8))}

    def shard_batch(self, batch):
        """By rows."""
        return jax.device_put(batch, self.on_mesh(*self.rows))

    def single_device(self, dtype):
        """The same on a mesh whose axes have one device."""
        return type(self)(dict.fromkeys(self.axes, 1), self.seed)


class Functional(Trainer):
    """Parameters in a dict by name, a loss, and an optimizer of optax: the loop of most papers."""

    shapes = {"hidden": (16, 32), "out": (32, 8)}
    trained = None
    optimizer = optax.adamw(1e-2)

    def mean_loss(self, w, batch):
        """Of one hidden layer."""
        return jnp.mean((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"] - batch["y"]) ** 2)

    def value_and_gradients(self, w, batch):
        """Of the global batch."""
        return jax.value_and_grad(self.mean_loss)(w, batch)

    def update(self, state, batch):
        """One step."""
        value, gradients = self.value_and_gradients(state["parameters"], batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer}, {
            "loss": value
        }

    def create(self, key):
        """Normal, scaled by the square root of what is summed."""
        keys = jax.random.split(key, len(self.shapes))
        draw = lambda key, shape: jax.random.normal(key, shape) / np.sqrt(shape[-2] if len(shape) > 1 else 4)  # noqa: E731
        return self.start({n: draw(k, s) for k, (n, s) in zip(keys, self.shapes.items(), strict=True)})

    def start(self, parameters):
        """A state."""
        return {"parameters": parameters, "optimizer": self.optimizer.init(parameters)}

    @cached_property
    def layouts(self):
        """The sharding of every array of a state: moments as `moments` says of their path, all else whole."""

        def of(path, leaf):
            part, _, name = named(path).partition("/")
            part = "optimizer_state" if part == "optimizer" else part
            return self.on_mesh(*self.contract.spec(part, name))

        return jax.tree_util.tree_map_with_path(of, jax.eval_shape(self.create, jax.random.key(0)))

    @cached_property
    def init(self):
        """Sharded as it is made."""
        return jax.jit(self.create, out_shardings=self.layouts)

    @cached_property
    def train_step(self):
        """Jitted; the state is donated and stays as it lies."""
        return jax.jit(self.update, donate_argnums=0, out_shardings=(self.layouts, None))

    @cached_property
    def loss(self):
        """The forward pass."""
        return jax.jit(lambda state, batch: self.mean_loss(state["parameters"], batch))

    @cached_property
    def gradients(self):
        """Laid out as they are promised."""
        of = {name: self.on_mesh(*self.contract.spec("gradients", name)) for name in self.trained or self.shapes}

        def gradients(state, batch):
            every = self.value_and_gradients(state["parameters"], batch)[1]
            return {name: every[name] for name in of}

        return jax.jit(gradients, out_shardings=of)

    def load(self, parameters):
        """These values, and a new optimizer."""
        return jax.device_put(self.start(jax.tree.map(jnp.asarray, dict(parameters))), self.layouts)

    def parameters(self, state):
        """By name."""
        return state["parameters"]

    def optimizer_state(self, state):
        """All that optax keeps."""
        return by_path(state["optimizer"])
