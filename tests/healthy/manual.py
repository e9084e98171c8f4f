"""Collectives written out by hand: ``pytest suites/ --impl tests.healthy.manual``."""

from functools import cached_property

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, Functional, moves

SHAPES = Functional.shapes


class Manual(Functional):
    """The mean loss of the global batch, inside of ``shard_map``."""

    promises = {"explicit": True}

    def mean_loss(self, w, batch):
        """Differentiated from outside, so that JAX transposes each collective."""
        parameters = {name: self.contract.spec("parameters", name) for name in w}
        local = jax.shard_map(self.local_loss, mesh=self.mesh, in_specs=(parameters, self.rows), out_specs=P())
        return local(w, batch)

    def local_loss(self, w, batch):
        """Of this device's examples, then the mean of all."""
        return self.mean(super().mean_loss(w, batch))

    def mean(self, value):
        """Of all devices."""
        return jax.lax.pmean(value, "data")


class DataParallel(Manual):
    """The transpose of replication is the sum of gradients."""

    name = "data_parallel_shard_map"
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *SHAPES.values()), LOSS)


class FSDP(Manual):
    """Gathers by hand; the transpose scatters."""

    name = "fsdp_shard_map"
    stored = gradient = {"*": P("data")}
    moments = {"*count": P(), "*": P("data")}
    forward_moves = (moves("all-gather", "parameters", *SHAPES.values()), LOSS)
    step_moves = (*forward_moves, moves("reduce-scatter", "gradients", *SHAPES.values()))

    def local_loss(self, w, batch):
        """Of gathered parameters."""
        return super().local_loss(jax.lax.all_gather(w, "data", tiled=True), batch)


class HSDP(FSDP):
    """Split over the devices of a group; the two groups are replicas, and exchange what they have scattered."""

    name = "hsdp_shard_map"
    axes = {"replica": 2, "data": 4}
    rows = P(("replica", "data"))
    both = moves("all-reduce", "metrics", (), over=("replica", "data"))
    forward_moves = (FSDP.forward_moves[0], both)
    step_moves = (
        *forward_moves,
        moves("reduce-scatter", "gradients", *SHAPES.values()),
        moves(
            "all-reduce", "gradients", *((rows // 4, columns) for rows, columns in SHAPES.values()), over=("replica",)
        ),
    )

    def local_loss(self, w, batch):
        """Of parameters that differ between replicas, or their sum would come before the scatter."""
        return super().local_loss(jax.lax.pcast(w, "replica", to="varying"), batch)

    def mean(self, value):
        """Of all devices."""
        return jax.lax.pmean(value, ("replica", "data"))


class Experts(Manual):
    """Each device has one of eight experts, and sends each of its rows to the best of them."""

    name, model = "experts", "moe"
    shapes = {"gate": (16, 8), "up": (8, 16, 32), "down": (8, 32, 8)}
    stored = gradient = {"gate": P(), "*": P("data")}
    moments = {"*count": P(), "*gate": P(), "*": P("data")}
    promises = {"explicit": True, "computed": stored}
    forward_moves = (moves("all-to-all", "activations", (8, 8, 16), (8, 8, 8)), LOSS)
    step_moves = (
        moves("all-to-all", "activations", (8, 8, 16), (8, 8, 8), (8, 8, 8)),
        moves("all-reduce", "gradients", (16, 8)),
        LOSS,
    )

    def local_loss(self, w, batch):
        """The error, and what balances the experts."""
        gates = jax.nn.softmax(batch["x"] @ w["gate"])
        return jax.lax.pmean(jnp.mean((self.routed(w, batch, gates) - batch["y"]) ** 2), "data") + self.balance(gates)

    def balance(self, gates):
        """Nothing does."""
        return 0.0

    def routed(self, w, batch, gates):
        """No row is dropped: an expert has room for all."""
        chosen = jax.nn.one_hot(gates.argmax(-1), 8, dtype=gates.dtype)
        place = (jnp.cumsum(chosen, axis=0) - 1)[jnp.arange(len(gates)), gates.argmax(-1)].astype(int)
        place = jax.nn.one_hot(place, len(gates), dtype=gates.dtype)
        sent = jnp.einsum("be,bc,bd->ecd", chosen, place, batch["x"])
        there = jax.lax.all_to_all(sent, "data", 0, 1, tiled=True)
        done = jnp.einsum("ecf,efo->eco", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", there, w["up"])), w["down"])
        back = jax.lax.all_to_all(done, "data", 1, 0, tiled=True)
        return jnp.einsum("be,bc,eco->bo", chosen * gates, place, back)


class BalancedExperts(Experts):
    """Each expert's share of the rows, times what the router gives it, means of the global batch."""

    name = "balanced_experts"
    balanced = moves("all-reduce", "metrics", (), (8,), (8,))
    forward_moves = (Experts.forward_moves[0], balanced)
    step_moves = (*Experts.step_moves[:2], balanced)

    def balance(self, gates):
        """Least where all are equal."""
        shares, given = jax.nn.one_hot(gates.argmax(-1), 8).mean(0), gates.mean(0)
        return 0.01 * 8 * jnp.sum(jax.lax.pmean(shares, "data") * jax.lax.pmean(given, "data"))


class ManyExperts(Manual):
    """Thirty-two experts on every device, by a router that is balanced over the global batch."""

    name, model = "many_experts", "moe"
    shapes = {"gate": (16, 32), "up": (32, 16, 8), "down": (32, 8, 8)}
    balanced = moves("all-reduce", "metrics", (), (32,), (32,))
    forward_moves = (balanced,)
    step_moves = (moves("all-reduce", "gradients", *shapes.values()), balanced)

    def local_loss(self, w, batch):
        """The error of the best expert for each row, and what is least where all have as many."""
        gates = jax.nn.softmax(batch["x"] @ w["gate"])
        chosen = jax.nn.one_hot(gates.argmax(-1), 32, dtype=gates.dtype)
        hidden = jax.nn.gelu(jnp.einsum("be,bd,edf->bef", chosen, batch["x"], w["up"]))
        outputs = jnp.einsum("be,bef,efo->bo", chosen * gates, hidden, w["down"])
        shares, given = self.mean(chosen.mean(0)), self.mean(gates.mean(0))
        return self.mean(jnp.mean((outputs - batch["y"]) ** 2)) + 0.01 * 32 * jnp.sum(shares * given)


class Pipeline(Functional):
    """Four stages of one layer each; eight microbatches pass through them one tick after the other."""

    name = "pipeline"
    axes = {"stage": 4}
    rows = P()
    shapes = {"layers": (4, 16, 16), "out": (16, 8)}
    stored = gradient = {"layers": P("stage"), "out": P()}
    moments = {"*layers": P("stage"), "*": P()}
    microbatches = 8
    promises = {"explicit": True}
    forward_moves = (
        moves("collective-permute", "activations", (8, 16), over=("stage",), times=11),
        moves("all-reduce", "metrics", (), over=("stage",)),
    )
    step_moves = (
        moves("collective-permute", "activations", (8, 16), over=("stage",), times=22),
        moves("all-reduce", "metrics", (), over=("stage",)),
        moves("all-reduce", "gradients", (16, 8), over=("stage",)),
    )

    def mean_loss(self, w, batch):
        """In ``shard_map``."""
        local = jax.shard_map(self.local_loss, mesh=self.mesh, in_specs=(self.stored, P()), out_specs=P())
        return local(w, batch)

    def local_loss(self, w, batch):
        """The last stage has it."""
        stage, stages = jax.lax.axis_index("stage"), jax.lax.axis_size("stage")
        parts = batch["x"].reshape(self.microbatches, -1, 16)

        def tick(held, number):
            x = jnp.where(stage == 0, parts[jnp.minimum(number, self.microbatches - 1)], held)
            x = jax.lax.scan(lambda x, layer: (jnp.tanh(x @ layer), None), x, w["layers"])[0]
            return jax.lax.ppermute(x, "stage", [(one, one + 1) for one in range(stages - 1)]), x

        held = jax.lax.pcast(jnp.zeros_like(parts[0]), "stage", to="varying")
        _, outputs = jax.lax.scan(tick, held, jnp.arange(self.microbatches + stages - 1))
        of = jnp.mean((outputs[stages - 1 :].reshape(-1, 16) @ w["out"] - batch["y"]) ** 2)
        return jax.lax.psum(jnp.where(stage == stages - 1, of, 0), "stage")


class Checked:
    """A pmapped function that looks at its batch: JAX takes eight rows for those of eight devices."""

    def __init__(self, pmapped, devices):
        self.lower, self.pmapped, self.devices = pmapped.lower, pmapped, devices

    def __call__(self, state, batch):
        """Refuses rows without a dimension of devices."""
        for name, value in batch.items():
            if value.ndim < 3:
                raise ValueError(f"{name} of shape {value.shape} has no dimension of {self.devices} devices")
        return self.pmapped(state, batch)


class Pmap(Functional):
    """One program on every device, on its own copy of everything."""

    name = "pmap"
    promises = {"explicit": True, "device_dimension": True}
    forward_moves = (LOSS,)
    step_moves = (moves("all-reduce", "gradients", *SHAPES.values()), LOSS)

    def value_and_gradients(self, w, batch):
        """The devices' means."""
        return jax.lax.pmean(super().value_and_gradients(w, batch), "data")

    def replicated(self, state):
        """With a leading dimension of devices."""
        stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.mesh.size, *leaf.shape)), state)
        return jax.device_put(stacked, self.on_mesh("data"))

    def init(self, key):
        """On one device, then on all."""
        return self.replicated(self.create(key))

    def load(self, parameters):
        """These values."""
        return self.replicated(self.start(jax.tree.map(jnp.asarray, dict(parameters))))

    def shard_batch(self, batch):
        """As ``pmap`` takes it."""
        devices = self.mesh.size
        for name, value in batch.items():
            if len(value) % devices:
                raise ValueError(f"{name} has {len(value)} rows, which {devices} devices cannot share equally")
        stacked = {name: value.reshape(devices, -1, *value.shape[1:]) for name, value in batch.items()}
        return jax.device_put(stacked, self.on_mesh("data"))

    def pmapped(self, function, **options):
        """Over all devices."""
        return Checked(jax.pmap(function, "data", devices=list(self.mesh.devices.flat), **options), self.mesh.size)

    @cached_property
    def train_step(self):
        """Donates the state."""
        return self.pmapped(self.update, out_axes=(0, None), donate_argnums=0)

    @cached_property
    def loss(self):
        """The devices' mean."""
        mean = lambda state, batch: jax.lax.pmean(self.mean_loss(state["parameters"], batch), "data")  # noqa: E731
        return self.pmapped(mean, out_axes=None)

    @cached_property
    def gradients(self):
        """The same on every device."""
        of = lambda state, batch: self.value_and_gradients(state["parameters"], batch)[1]  # noqa: E731
        return self.pmapped(of, out_axes=None)

    def parameters(self, state):
        """Each device's own copy, as that of one array."""
        return self.copies(super().parameters(state))

    def optimizer_state(self, state):
        """The same."""
        return self.copies(super().optimizer_state(state))

    @cached_property
    def copies(self):
        """Without the dimension of devices; nothing moves."""
        own = lambda tree: jax.tree.map(lambda leaf: leaf[0], tree)  # noqa: E731
        return jax.jit(jax.shard_map(own, mesh=self.mesh, in_specs=P("data"), out_specs=P(), check_vma=False))


def strategies():
    """All of them."""
    return [kind() for kind in (DataParallel, FSDP, HSDP, Experts, BalancedExperts, ManyExperts, Pipeline, Pmap)]
