"""Small language models under data parallelism: ``pytest suites/ --impl tests.healthy.language_models``."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from .trainer import LOSS, Functional, moves

VOCABULARY, WIDTH, HIDDEN, HEADS, LENGTH = 16, 16, 32, 8, 8
BLOCK = {
    "scale": (WIDTH,),
    "qkv": (WIDTH, 3, HEADS, WIDTH // HEADS),
    "attended": (HEADS, WIDTH // HEADS, WIDTH),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}


def normalised(x, scale):
    """Root-mean-square norm."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale


def attention(q, k, v, first=0):
    """Causal, of (rows, length, heads, width); queries begin at position ``first``."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    seen = first + jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -1e9)), v)


def block(w, x, down=None):
    """Attention and a hidden layer, each added."""
    q, k, v = jnp.moveaxis(jnp.einsum("bld,dnhk->blnhk", normalised(x, w["scale"]), w["qkv"]), 2, 0)
    x = x + jnp.einsum("blhk,hkd->bld", attention(q, k, v), w["attended"])
    hidden = jax.nn.gelu(x @ w["up"])
    return x + (hidden @ w["down"] if down is None else down(hidden))


def cross_entropy(logits, batch):
    """The mean over tokens."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["next"]).mean()


class LanguageModel(Functional):
    """One block between an embedding and a head."""

    name, model = "language_model", "gpt"
    shapes = {"table": (VOCABULARY, WIDTH)} | BLOCK | {"head": (WIDTH, VOCABULARY)}
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    forward_moves = (LOSS,)

    @property
    def step_moves(self):
        """Every gradient once."""
        return (moves("all-reduce", "gradients", *(self.shapes[name] for name in self.trained or self.shapes)), LOSS)

    def batch(self, draws):
        """16 rows of tokens, and of those that follow."""
        tokens = draws.integers(0, VOCABULARY, size=(16, LENGTH + 1)).astype(np.int32)
        return {"tokens": tokens[:, :-1], "next": tokens[:, 1:]}

    def mean_loss(self, w, batch):
        """Of every next token."""
        return cross_entropy(self.logits(w, batch), batch)

    def logits(self, w, batch):
        """Of (rows, length) tokens."""
        return self.blocks(w, w["table"][batch["tokens"]]) @ w["head"]

    def blocks(self, w, x):
        """The one."""
        return block(w, x)


class Rematerialised(LanguageModel):
    """The backward pass computes the block again."""

    name = "rematerialised"
    promises = {"rematerialises": True}

    def blocks(self, w, x):
        """Of whose inside only the products are kept."""
        return jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)(w, x)


class Scanned(LanguageModel):
    """Two blocks, stacked in one array of each name, by one loop."""

    name = "scanned_layers"
    shapes = LanguageModel.shapes | {name: (2, *shape) for name, shape in BLOCK.items()}

    def blocks(self, w, x):
        """Each on the result of the one before."""
        return jax.lax.scan(lambda x, layer: (block(layer, x), None), x, {name: w[name] for name in BLOCK})[0]


class Tied(LanguageModel):
    """The embedding is the head."""

    name = "tied_embedding"
    shapes = {"table": (VOCABULARY, WIDTH)} | BLOCK

    def mean_loss(self, w, batch):
        """In ``shard_map``: a device adds what both uses say of the table, and the sum is reduced once."""

        def local(w, batch):
            w = jax.lax.pcast(w, "data", to="varying")
            of = cross_entropy(self.blocks(w, w["table"][batch["tokens"]]) @ w["table"].T, batch)
            return jax.lax.pmean(of, "data")

        return jax.shard_map(local, mesh=self.mesh, in_specs=(P(), P("data")), out_specs=P())(w, batch)


class Reporting(LanguageModel):
    """Returns what a dashboard shows beside the loss."""

    name = "reporting"

    @property
    def step_moves(self):
        """One more scalar."""
        return (*super().step_moves, LOSS)

    def update(self, state, batch):
        """Of the parameters before the update, as the loss is."""
        w = state["parameters"]
        new, metrics = super().update(state, batch)
        hits = self.logits(w, batch).argmax(-1) == batch["next"]
        size = optax.tree.norm(w)
        return new, metrics | {"accuracy": hits.mean(), "perplexity": jnp.exp(metrics["loss"]), "size": size}


ADAPTERS = {"down_a": (HIDDEN, 4), "down_b": (4, WIDTH)}


class Adapted(LanguageModel):
    """LoRA: the base is frozen, and two thin matrices beside one of its own are trained."""

    name = "lora"
    shapes, trained = LanguageModel.shapes | ADAPTERS, tuple(ADAPTERS)
    gradient = dict.fromkeys(ADAPTERS, P())

    def start(self, parameters):
        """Moments of the adapters alone."""
        return {"parameters": parameters, "optimizer": self.optimizer.init({n: parameters[n] for n in ADAPTERS})}

    def value_and_gradients(self, w, batch):
        """With respect to the adapters."""
        return jax.value_and_grad(lambda of: self.mean_loss(w | of, batch))({name: w[name] for name in ADAPTERS})

    def update(self, state, batch):
        """The base stays."""
        w = state["parameters"]
        value, gradients = self.value_and_gradients(w, batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], {n: w[n] for n in ADAPTERS})
        trained = {name: w[name] + updates[name] for name in ADAPTERS}
        return {"parameters": w | trained, "optimizer": optimizer}, {"loss": value}

    def blocks(self, w, x):
        """With what the adapters add, which is small before it is multiplied by the base, and large after."""
        return block(w, x, lambda h: h @ w["down"] + h @ w["down_a"] @ w["down_b"])


class Frozen(LanguageModel):
    """Fine-tuning of all but the embedding."""

    name = "frozen_embedding"
    trained = tuple(name for name in LanguageModel.shapes if name != "table")
    gradient = dict.fromkeys(trained, P())
    optimizer = optax.multi_transform(
        {"train": optax.adamw(1e-2), "freeze": optax.set_to_zero()},
        {name: "freeze" if name == "table" else "train" for name in LanguageModel.shapes},
    )


class Stopped(Frozen):
    """The same, which shows the embedding's gradient: that of what nothing flows into."""

    name = "stopped_embedding"

    def mean_loss(self, w, batch):
        """Of every next token."""
        return super().mean_loss(w | {"table": jax.lax.stop_gradient(w["table"])}, batch)

    @property
    def gradients(self):
        """Of every parameter."""
        return jax.jit(lambda state, batch: self.value_and_gradients(state["parameters"], batch)[1])


def strategies():
    """All of them."""
    return [kind() for kind in (LanguageModel, Reporting, Rematerialised, Scanned, Tied, Adapted, Frozen, Stopped)]
