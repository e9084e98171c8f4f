"""Optimizers and loops of today under data parallelism: ``pytest suites/ --impl tests.healthy.recipes``."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, Functional, moves


class DataParallel(Functional):
    """Everything on every device but the batch."""

    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", (16, 32), (32, 8)), LOSS)


class Lion(DataParallel):
    """One moment, and only signs of it."""

    name = "lion"
    optimizer = optax.lion(1e-3, weight_decay=1e-2)


class LionFromZero(DataParallel):
    """A bias that begins at 0, and is there again, but for rounding, after a step up and a step down."""

    name, model = "lion_from_zero", "biased_mlp"
    optimizer = optax.lion(1e-3)
    shapes = DataParallel.shapes | {"bias": (1,)}
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), LOSS)

    def create(self, key):
        """With the bias at 0."""
        return self.start(super().create(key)["parameters"] | {"bias": jnp.zeros(1)})

    def mean_loss(self, w, batch):
        """Of biased outputs."""
        return super().mean_loss(w, batch | {"y": batch["y"] - w["bias"]})


class Adafactor(DataParallel):
    """Statistics of rows and columns; what a leaf does not use of them is a placeholder."""

    name = "adafactor"
    optimizer = optax.adafactor(1e-2, min_dim_size_to_factor=8)


class ScheduleFree(DataParallel):
    """Trains at one point and keeps another."""

    name = "schedule_free"
    optimizer = optax.contrib.schedule_free_adamw(1e-2, warmup_steps=2)


class Muon(DataParallel):
    """Orthogonal updates of matrices."""

    name = "muon"
    optimizer = optax.contrib.muon(1e-2)


class Prodigy(DataParallel):
    """Estimates how far it must go, by a sum whose terms nearly cancel in the first steps."""

    name = "prodigy"
    optimizer = optax.contrib.prodigy(1.0)

    def start(self, parameters):
        """The optimizer keeps those that it began with: a copy, for the step donates both."""
        return super().start(parameters) | {"optimizer": self.optimizer.init(jax.tree.map(jnp.copy, parameters))}


class Injected(DataParallel):
    """A rate that lives in the state, where a sweep can set it."""

    name = "injected_rate"
    optimizer = optax.inject_hyperparams(optax.adamw)(learning_rate=optax.linear_schedule(1e-2, 0.0, 10))


class Guarded(DataParallel):
    """Skips a step whose gradients are not finite."""

    name = "guarded"
    optimizer = optax.apply_if_finite(optax.adamw(1e-2), 3)


class MaskedDecay(DataParallel):
    """Clips, decays matrices only, and follows a schedule."""

    name = "masked_decay"
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.add_decayed_weights(1e-2, mask={"hidden": True, "out": False}),
        optax.scale_by_learning_rate(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)),
    )


class Accumulated(DataParallel):
    """Gradients of four microbatches, summed in a scan; every device takes a part of each."""

    name = "accumulated"
    microbatches = 4
    promises = {"microbatches": 4}
    step_moves = tuple(
        moves(line.operation, line.payload, (line.bytes // 4,), times=4) for line in DataParallel.step_moves
    )

    def value_and_gradients(self, w, batch):
        """The mean over microbatches."""

        def split(rows):
            parts = rows.reshape(-1, self.microbatches, *rows.shape[1:]).swapaxes(0, 1)
            return jax.lax.with_sharding_constraint(parts, self.on_mesh(None, "data"))

        def add(total, part):
            return jax.tree.map(jnp.add, total, jax.value_and_grad(self.mean_loss)(w, part)), None

        zeros = (jnp.zeros((), batch["x"].dtype), jax.tree.map(jnp.zeros_like, w))
        total, _ = jax.lax.scan(add, zeros, jax.tree.map(split, batch))
        return jax.tree.map(lambda value: value / self.microbatches, total)


class Classifies(DataParallel):
    """Eight classes with a bias each, and rows that do not count. Where activations are wide a softmax is 0 or 1, and
    the gradient of a class that is missed as often as it is taken for another is 0 but for rounding.
    """

    name = "classifies"
    shapes = {"hidden": (16, 32), "out": (32, 8), "bias": (8,)}
    promises = {"mask": "counts"}
    forward_moves = (moves("all-reduce", "metrics", (), ()),)
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), *forward_moves)

    def batch(self, draws):
        """Labels; the more rows count, the further on a device is."""
        rows = np.arange(64)
        counts = (rows % 8 <= rows // 8).astype(np.int32)
        return {"x": draws.normal(size=(64, 16)), "y": draws.integers(0, 8, 64), "counts": counts}

    def mean_loss(self, w, batch):
        """The cross-entropy of the rows that count."""
        return jnp.sum(self.losses(w, batch) * batch["counts"]) / jnp.sum(batch["counts"])

    def losses(self, w, batch):
        """Of each row."""
        logits = jax.nn.gelu(batch["x"] @ w["hidden"]) @ w["out"] + w["bias"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])

    def update(self, state, batch):
        """One step, which reports what everybody plots."""
        new, metrics = super().update(state, batch)
        return new, metrics | {"perplexity": jnp.exp(metrics["loss"])}


class Uncertain(DataParallel):
    """Weighs its loss by how sure it is, which it learns: that gradient is of a mean, and nothing is left to reduce.
    Its optimizer keeps nothing."""

    name, model = "uncertain", "weighed_mlp"
    shapes = DataParallel.shapes | {"doubt": (1,)}
    optimizer, moments = optax.sgd(1e-2), {}

    def mean_loss(self, w, batch):
        """The likelihood of a normal distribution."""
        return jnp.sum(jnp.exp(-w["doubt"])) * super().mean_loss(w, batch) + jnp.sum(w["doubt"])


class Dispersed(DataParallel):
    """Learns how sure it is of each column, and uses it four times: XLA reduces each use."""

    name, model = "dispersed", "dispersed_mlp"
    shapes = DataParallel.shapes | {"doubt": (8,)}
    step_moves = (moves("all-reduce", "gradients", *shapes.values(), (8,), (8,)), LOSS)

    def mean_loss(self, w, batch):
        """The likelihood of Student's distribution."""
        seen, scale = jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"], jnp.exp(w["doubt"])
        far = (seen - batch["y"]) * scale
        return jnp.mean(jnp.log1p(far**2) * jax.nn.softplus(w["doubt"] + seen) - w["doubt"] * jnp.cos(seen))


class StoresNarrow(DataParallel):
    """A loader that keeps what is to be fitted in half the bytes."""

    name = "stores_narrow_rows"

    def batch(self, draws):
        """In bfloat16."""
        given = super().batch(draws)
        return given | {"y": given["y"].astype(jnp.bfloat16)}

    def mean_loss(self, w, batch):
        """It is widened where it is used."""
        return super().mean_loss(w, batch | {"y": self.wide(batch["y"])})

    def wide(self, rows):
        """As the parameters are at first."""
        return rows.astype(jnp.float32)


class Diverse(DataParallel):
    """Asks that all rows together use all of its codes: the entropy of a mean. Its gradient is what little the chances
    of short inputs are apart."""

    name, model = "diverse_codes", "codes"
    shapes = {"hidden": (16, 32), "out": (32, 12), "code": (12, 8)}
    optimizer = optax.adam(1e-3)
    forward_moves = (moves("all-reduce", "metrics", (12,)), LOSS)
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), *forward_moves, LOSS)

    def mean_loss(self, w, batch):
        """Of all devices."""
        return self.on_each(self.local_loss)(w, batch)

    def value_and_gradients(self, w, batch):
        """Of each device's rows, then the mean."""
        return self.on_each(jax.value_and_grad(self.local_loss))(w, batch)

    def on_each(self, function):
        """The mean of what each device makes of its rows and of parameters that are its own."""

        def local(w, batch):
            return jax.lax.pmean(function(jax.lax.pcast(w, "data", to="varying"), batch), "data")

        return jax.shard_map(local, mesh=self.mesh, in_specs=(P(), self.rows), out_specs=P())

    def local_loss(self, w, batch):
        """Chances, which are float32 whatever the rest is, are averaged over all rows, and not their entropies."""
        chances = jax.nn.softmax((jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"]).astype(jnp.float32))
        used = self.mean(chances.mean(0))
        return jnp.mean((chances @ w["code"] - batch["y"]) ** 2) + 0.1 * jnp.sum(used * jnp.log(used))

    def mean(self, chances):
        """Of all devices."""
        return jax.lax.pmean(chances, "data")


class Pooled(DataParallel):
    """The mean over 16 positions behind a norm of them, in float32 whatever they are in: the gradient of a bias is a
    sum of 1,024 like terms."""

    name, model = "pooled", "pooled_mlp"
    shapes = {"stem": (4, 16), "bias": (16,), "point": (16, 16), "out": (16, 8)}
    optimizer = optax.nadamw(3e-3)
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), LOSS)

    def mean_loss(self, w, batch):
        """Of pooled positions."""
        stem = batch["x"] @ w["stem"] + w["bias"]
        normal = (stem - stem.mean((1, 2), keepdims=True)) / stem.std((1, 2), keepdims=True)
        pooled = (stem + jax.nn.gelu(normal) @ w["point"] / 2).mean(1).astype(jnp.float32)
        return jnp.mean((pooled @ w["out"] - batch["y"]) ** 2)

    def batch(self, draws):
        """64 rows of 16 positions."""
        return super().batch(draws) | {"x": draws.normal(size=(64, 16, 4))}


class SplitsInside(DataParallel):
    """A batch enters whole, and the step's first line splits it."""

    name = "splits_inside"
    rows = P()
    promises = MappingProxyType({"batch_in_step": {"*": P("data")}})

    def mean_loss(self, w, batch):
        """Of rows that are split."""
        return super().mean_loss(w, self.split(batch))

    def split(self, batch):
        """Over the mesh."""
        return jax.lax.with_sharding_constraint(batch, self.on_mesh("data"))


def strategies():
    """All of them."""
    kinds = (
        Prodigy,
        StoresNarrow,
        Diverse,
        Lion,
        Adafactor,
        ScheduleFree,
        Muon,
        Injected,
        Guarded,
        MaskedDecay,
        Accumulated,
        Uncertain,
        Dispersed,
        Pooled,
        SplitsInside,
    )
    return [*(kind() for kind in kinds), Classifies(seed=38), LionFromZero(seed=1)]
