"""Faults that only a real compiler shows: ``pytest suites/ --impl tests.accelerated --target gpu:h200:8``."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding, PartitionSpec

from meshproof.contract import Communication
from tests.accelerated.trainer import KERNEL, Trainer, gather, metrics

MANY = 1 << 17
"""Layers of a trainer that fits no chip: each of eight devices would hold 137 GB of kernels, and their gradients."""

CAUGHT_BY = {}
"""Strategy to the clauses that must fail on every target that only compiles; none for the healthy one."""


def plant(name, *caught_by, trainer=Trainer, **members):
    """The healthy trainer under another name, with some of its members replaced."""
    CAUGHT_BY[name] = set(caught_by)
    return trainer(name, **members)


@jax.custom_vjp
def summed_whole(w):
    """Gathered as it should be; backward every device sums the whole gradient, and then keeps its part."""
    return gather(w)


def keep_own_part(_, gradient):
    """A barrier keeps the compiler from making a reduce-scatter of it."""
    whole = jax.lax.optimization_barrier(jax.lax.psum(gradient, "data"))
    size = whole.shape[0] // jax.lax.axis_size("data")
    own = jax.lax.dynamic_slice_in_dim(whole, jax.lax.axis_index("data") * size, size)
    return (own.astype(jnp.float32),)


summed_whole.defvjp(lambda w: (gather(w), None), keep_own_part)


def gathered_wide(w):
    """Gathered in float32 and cast then: a barrier keeps the compiler from casting first."""
    whole = jax.lax.all_gather(w, "data", axis=0, tiled=True)
    return jax.lax.optimization_barrier(whole).astype(jnp.bfloat16)


def gathered_before_the_loop(w):
    """Every layer at once."""
    return jax.tree.map(lambda w: jax.lax.all_gather(w.astype(jnp.bfloat16), "data", axis=1, tiled=True), w)


class WaitingForEachGather(Trainer):
    """A kernel is gathered when the product before it is done: nothing runs meanwhile."""

    def apply(self, x, layer):
        """One layer; what is added to a kernel is nothing, but the compiler may not know that."""
        h = jax.nn.relu(x @ self.gather(layer["in_LxDxF"] + 0 * x[0, 0]))
        return x + h @ self.gather(layer["out_LxFxD"] + 0 * h[0, 0])


class CopiedInTheLoop(Trainer):
    """The update goes layer by layer in a loop that looks at the old kernels after it has changed them."""

    def update(self, w, gradients):
        """The new kernels; a barrier keeps the old ones alive."""

        def body(layer, carried):
            w, largest = carried
            new = jax.tree.map(lambda w, g: w.at[layer].add(-0.01 * g[layer]), w, gradients)
            old, new = jax.lax.optimization_barrier((w, new))
            return new, jax.tree.map(lambda size, w: jnp.maximum(size, jnp.max(w)), largest, old)

        largest = jax.tree.map(lambda w: jax.lax.pcast(jnp.zeros(()), "data", to="varying"), w)
        new, largest = jax.lax.fori_loop(0, self.depth, body, (w, largest))
        return jax.tree.map(lambda w, size: jnp.where(jnp.isnan(size), 0, w), new, largest)


class DroppedOnCpu(Trainer):
    """FSDP by annotation, which leaves its constraints away where it finds a CPU, as some trainers do."""

    @property
    def on_cpu(self):
        """Asked where the step is traced."""
        return jax.devices()[0].platform == "cpu"

    def global_loss(self, w, batch):
        """The mean over all examples; each layer is gathered in the loop, if this is an accelerator."""
        whole = NamedSharding(self.mesh, PartitionSpec())

        def body(x, layer):
            in_use = jax.tree.map(lambda w: w if self.on_cpu else with_sharding_constraint(w, whole), layer)
            return x + jax.nn.relu(x @ in_use["in_LxDxF"]) @ in_use["out_LxFxD"], None

        x, _ = jax.lax.scan(body, batch["x"], w)
        return jnp.mean((x - batch["y"]) ** 2)

    def over_devices(self, function, out_specs):
        """As it is."""
        return function

    @property
    def contract(self):
        """Kernels are split by their hidden features; each is gathered once forward."""
        kernels = Communication("all-gather", ("data",), "parameters", 2 * self.depth * KERNEL)
        own = {"in_LxDxF": PartitionSpec(None, None, "data"), "out_LxFxD": PartitionSpec(None, "data")}
        told = {"parameters": own, "gradients": own, "forward": (kernels, metrics), "step": None}
        kept = {"explicit": False, "compute_dtype": "float32", "rematerialises": False}
        return replace(super().contract, **told, **kept)


class CallsBack(DroppedOnCpu):
    """A step that tells the host of its loss, as ``jax.debug.print`` does."""

    def global_loss(self, w, batch):
        """And waits for it."""
        loss = super().global_loss(w, batch)
        jax.debug.callback(lambda loss: None, loss)
        return loss


def strategies():
    """The healthy one, and one strategy per fault."""
    return [
        plant("healthy_scanned"),
        plant("healthy_unless_on_a_cpu", trainer=DroppedOnCpu, overlap=None),
        plant("calls_back", "CMP-2", trainer=CallsBack, overlap=None),
        plant("summed_whole_on_the_wire", "COM-13", gather=summed_whole, explicit=False),
        plant("summed_whole_though_by_hand", "COM-13", gather=summed_whole, best_on_wire=False),
        plant("gathered_in_float32", "COM-11", gather=gathered_wide),
        plant("gathered_before_the_loop", "COM-11", layers=gathered_before_the_loop, gather=lambda w: w),
        plant("too_large", "MEM-8", depth=MANY, budgeted=False, overlap=None),
        plant("waits_for_each_gather", "COM-12", trainer=WaitingForEachGather),
        plant("copied_in_the_loop", "MEM-7", trainer=CopiedInTheLoop),
        plant("recomputation_undone", "COM-11", "MEM-6", recompute=lambda body: body),
    ]
