"""A mixture of experts in plain JAX: every token asks for the k experts its router prefers, and each has few places.

Dims: B tokens (every example is one), D features, M model width, E experts, F width of an expert, C classes; B = G·S:
G groups of S tokens that lie one after another in the batch, in each of which an expert has P places.

The places of an expert are given out in the order of the tokens, and a token that comes too late is dropped by it: it
keeps its residual. Groups and not devices have places (GShard, Lepikhin et al. 2020), so that on every mesh whose
devices hold whole groups the same tokens are dropped. Two logical axes are here for what they are not: the router's
outputs are ``routes`` and not ``experts``, for it scores all of them on every device; and an expert's inputs are
``expert_embed`` and not ``embed``, for an axis that splits the experts can split everybody's width but theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from reference_impl.mapping import Axes
from reference_impl.models import Model, Region
from reference_impl.models.layout import Layout
from reference_impl.truth import MoETruth, Optimizer


@dataclass(frozen=True)
class MoE(Model):
    """One block between an input projection and a head. Raises ``ValueError`` where a token has too few experts."""

    features: int = 256
    width: int = 64
    experts: int = 8
    hidden: int = 128
    classes: int = 10
    choices: int = 2
    group: int = 8
    capacity_factor: float = 1.0
    name: ClassVar[str] = "moe"

    def __post_init__(self) -> None:
        if not 1 <= self.choices <= self.experts:
            raise ValueError(f"{self.choices} choices of {self.experts} experts: a token needs from 1 to all of them")

    @property
    def capacity(self) -> int:
        """The places P of an expert in a group: its fair share of the group's choices, times the capacity factor."""
        return ceil(self.capacity_factor * self.choices * self.group / self.experts)

    @property
    def axes(self) -> dict[str, dict[str, Axes]]:
        """The canonical parameter tree, with logical axes at its leaves."""
        return {
            "input": {"kernel": ("input", "embed"), "bias": ("embed",)},
            "router": {"kernel": ("embed", "routes")},
            "experts": {"up": ("experts", "expert_embed", "mlp"), "down": ("experts", "mlp", "expert_embed")},
            "head": {"kernel": ("embed", "classes"), "bias": ("classes",)},
        }

    @property
    def shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """The canonical parameter tree, with shapes at its leaves."""
        D, M, E, F, C = self.features, self.width, self.experts, self.hidden, self.classes
        return {
            "input": {"kernel": (D, M), "bias": (M,)},
            "router": {"kernel": (M, E)},
            "experts": {"up": (E, M, F), "down": (E, F, M)},
            "head": {"kernel": (M, C), "bias": (C,)},
        }

    @property
    def batch_axes(self) -> dict[str, Axes]:
        """The fields of a batch: inputs x (B, D) and labels y (B,)."""
        return {"x": ("batch", "input"), "y": ("batch",)}

    def regions(self) -> Iterator[Region]:
        """The experts: a group sends its places in all of them, filled or not, and gets as many back.

        Raises ``ValueError`` where these elements are no whole number for each of its tokens.
        """
        elements = self.experts * self.capacity * self.width
        if elements % self.group:
            raise ValueError(
                f"{elements} elements at the places of a group are not divisible by its {self.group} tokens"
            )
        yield Region("experts", entered=elements // self.group, left=elements // self.group)

    @property
    def products(self) -> int:
        """A token's, with as many experts as it chooses; not those by which it is sent to them and fetched."""
        around = self.features + self.experts + self.classes
        return around * self.width + self.choices * 2 * self.width * self.hidden

    def truth(self, optimizer: Optimizer) -> MoETruth:
        """The truth of this network."""
        return MoETruth(
            features=self.features,
            width=self.width,
            experts=self.experts,
            hidden=self.hidden,
            classes=self.classes,
            choices=self.choices,
            group=self.group,
            capacity=self.capacity,
            optimizer=optimizer,
        )

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Float32 parameters: LeCun-uniform kernels, zero biases."""
        dense, stacked = jax.nn.initializers.lecun_uniform(), jax.nn.initializers.lecun_uniform(batch_axis=0)
        keys = iter(jax.random.split(key, 5))
        return {
            layer: {
                name: jnp.zeros(shape) if name == "bias" else (stacked if len(shape) > 2 else dense)(next(keys), shape)
                for name, shape in shapes.items()
            }
            for layer, shapes in self.shapes.items()
        }

    def apply(self, parameters: Mapping[str, Any], x_BxD: jax.Array, layout: Layout) -> jax.Array:
        """Logits (B, C). Raises ``ValueError`` where the tokens are no whole groups."""
        if len(x_BxD) % self.group:
            raise ValueError(f"{len(x_BxD)} tokens are not divisible by groups of {self.group}")
        into, head = parameters["input"], parameters["head"]
        h_BxM = layout.product("bd,dm->bm", x_BxD, into["kernel"], "input", ("embed",)) + into["bias"]
        h_BxM = h_BxM + self.mixture(parameters, h_BxM, layout)
        return layout.product("bm,mc->bc", h_BxM, head["kernel"], "embed", ("classes",)) + head["bias"]

    def mixture(self, parameters: Mapping[str, Any], h_BxM: jax.Array, layout: Layout) -> jax.Array:
        """What the experts say of each token (B, M), weighted by its gates; 0 of a token that all of them dropped."""
        scores_BxE = layout.product("bm,me->be", h_BxM, parameters["router"]["kernel"], "embed", ("routes",))
        h_GxSxM = h_BxM.reshape(-1, self.group, self.width)
        gates_GxSxE, seats_GxSxExP = self.route(scores_BxE.reshape(-1, self.group, self.experts))
        x_GxExPxM = layout.dispatch(jnp.einsum("gsep,gsm->gepm", seats_GxSxExP, h_GxSxM))
        z_GxExPxF = jax.nn.relu(jnp.einsum("gepm,emf->gepf", x_GxExPxM, parameters["experts"]["up"]))
        y_GxExPxM = layout.combine(jnp.einsum("gepf,efm->gepm", z_GxExPxF, parameters["experts"]["down"]))
        weights_GxSxExP = gates_GxSxE[..., None] * seats_GxSxExP
        return jnp.einsum("gsep,gepm->gsm", weights_GxSxExP, y_GxExPxM).reshape(h_BxM.shape)

    def route(self, scores_GxSxE: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The gates (G, S, E), which sum to one over the k chosen experts, and who has which place (G, S, E, P)."""
        p_GxSxE = jax.nn.softmax(scores_GxSxE)
        chosen_GxSxE = jnp.zeros_like(p_GxSxE)
        for _ in range(self.choices):
            best_GxS = jnp.where(chosen_GxSxE > 0, -1.0, p_GxSxE).argmax(-1)
            chosen_GxSxE += jax.nn.one_hot(best_GxS, self.experts)
        kept_GxSxE = p_GxSxE * chosen_GxSxE
        before_GxSxE = jnp.cumsum(chosen_GxSxE, axis=1) - chosen_GxSxE
        seats_GxSxExP = jax.nn.one_hot(before_GxSxE.astype(jnp.int32), self.capacity) * chosen_GxSxE[..., None]
        return kept_GxSxE / kept_GxSxE.sum(-1, keepdims=True), seats_GxSxExP

    def mean_loss(self, y_BxC: jax.Array, labels: jax.Array) -> jax.Array:
        """The scalar mean cross-entropy over tokens."""
        return optax.softmax_cross_entropy_with_integer_labels(y_BxC, labels).mean()
