"""google-tunix's Llama 3.2 1B at its real size: ``pytest suites/ --impl docs.foreign.tunix_llama --target gpu:h100:8``.

The model is tunix's own file, with its annotations and its rematerialisation; loss, optimizer and step are those of its
fine-tuning, in a few lines. What the package imports before it gets there (data sets, tokenizers, generation) is passed
over, so that the model's own requirements are enough: ``docs/foreign/tunix-requirements.txt``.
"""

import sys
from functools import cached_property, partial
from importlib.util import find_spec
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.contract import Contract

package = ModuleType("tunix")
package.__path__ = list(find_spec("tunix").submodule_search_locations)
sys.modules["tunix"] = package

from tunix.models.llama3.model import Llama3, ModelConfig, RematConfig  # noqa: E402

ROWS, LENGTH = 16, 1024
OPTIMIZER = optax.adamw(1e-5)
LAYOUT = {
    "embedder/*": P("tp", "fsdp"),
    "*down_proj/kernel": P("tp", "fsdp"),
    "*_proj/kernel": P("fsdp", "tp"),
    "*o_proj/w": P("tp", None, "fsdp"),
    "*_proj/w": P("fsdp", "tp"),
    "*norm/w": P("tp"),
}


class OnMesh:
    """A function of NNX, called and lowered under a mesh, which tunix asks JAX for."""

    def __init__(self, mesh, function):
        self.mesh, self.function = mesh, function

    def __call__(self, *arguments):
        with self.mesh:
            return self.function(*arguments)

    def lower(self, *arguments):
        with self.mesh:
            return self.function.lower(*arguments)


class Llama:
    """FSDP and tensor parallelism as tunix annotates them."""

    name, framework, model = "fsdp_tensor_parallel", "nnx", "llama_3_2_1b"
    contract = Contract(parameters=LAYOUT, batch={"*": P("fsdp")}, rematerialises=True)

    def __init__(self, fsdp=4, tp=2):
        self.mesh_axes = {"fsdp": fsdp, "tp": tp}

    @cached_property
    def mesh(self):
        sizes = tuple(self.mesh_axes.values())
        return Mesh(np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes), tuple(self.mesh_axes))

    @cached_property
    def init(self):
        config = ModelConfig.llama3p2_1b()
        object.__setattr__(config, "remat_config", RematConfig.DECODER)

        @nnx.jit
        def create(key):
            model = Llama3(config, rngs=nnx.Rngs(key))
            made = model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)
            state = nnx.state(made)
            nnx.update(made, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
            return made

        return OnMesh(self.mesh, create)

    @cached_property
    def train_step(self):
        @partial(nnx.jit, donate_argnums=0)
        def step(state, batch):
            model, optimizer = state
            value, gradients = nnx.value_and_grad(loss)(model, batch)
            optimizer.update(model, gradients)
            return state, {"loss": value}

        return OnMesh(self.mesh, step)

    def batches(self, count):
        draws = np.random.default_rng(0)
        return [{"tokens": draws.integers(128256, size=(ROWS, LENGTH), dtype=np.int32)} for _ in range(count)]

    def shard_batch(self, batch):
        return jax.device_put(batch, NamedSharding(self.mesh, P("fsdp")))

    def parameters(self, state):
        return nnx.to_pure_dict(nnx.state(state[0], nnx.Param))


def loss(model, batch):
    tokens = batch["tokens"]
    positions = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
    mask = jnp.broadcast_to(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), (len(tokens), LENGTH, LENGTH))
    logits, _ = model(tokens, positions, None, mask)
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()


def strategies():
    return [Llama()]
