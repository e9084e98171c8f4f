"""The GPT: forward, and the backward pass by hand, over numbers that know their float32 rounding.

    B  examples          V  vocabulary      N  tokens of a batch, B·T
    T  positions         D  embed           x, y  a layer's input and output
    H  heads             K  head_dim        d…    the gradient of the loss by …
    F  mlp               S  positions of keys

Every layer returns its output and its pullback: from the output's gradient to the input's and the parameters'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from meshproof.contract import Batch, Evaluation, ReferenceTrajectory, Tree

from .data import draw_bell, draw_chains
from .judge import ModelTruth, check_labels
from .mlp import softmax_cross_entropy
from .operations import (
    causal_softmax,
    gelu,
    gelu_backward,
    look_up,
    normalise,
    normalise_backward,
    rearrange,
    scatter_add,
    softmax_backward,
)
from .optimizers import Momentum, Optimizer, Values
from .rounding import Array, Rounded
from .threefry import Key, draw_bernoulli, fold_in, make_key

EPSILON = 1e-6
"""What layer normalisation adds to the variance."""

DROPOUT_SEED = 0
"""The seed of all dropout masks: a mask depends on it, on the number of steps taken, and on the site."""

Gradients = dict[str, Rounded]
Pullback = Callable[[Rounded], tuple[Rounded, Gradients]]


@dataclass(frozen=True)
class GPTTruth(ModelTruth):
    """The truth of a GPT's numbers: its sizes, its dropout and an optimizer.

    The loss is the mean cross-entropy over B·T tokens. With dropout the draws of a step depend on its number, not on
    ``seed``, which is that of start values and batches.
    """

    vocab: int = 96
    length: int = 16
    embed: int = 64
    heads: int = 8
    head_dim: int = 8
    mlp: int = 256
    blocks: int = 2
    dropout: float = 0.0
    optimizer: Optimizer = field(default_factory=Momentum)
    seed: int = 0

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The global shape of every parameter by path, in the model's order."""
        D, H, K, F = self.embed, self.heads, self.head_dim, self.mlp
        norm: dict[str, tuple[int, ...]] = {"scale": (D,), "bias": (D,)}
        layers: dict[str, dict[str, tuple[int, ...]]] = {
            "token_embedding": {"embedding": (self.vocab, D)},
            "position_embedding": {"embedding": (self.length, D)},
        }
        for i in range(self.blocks):
            layers |= {
                f"block_{i}/norm_1": norm,
                f"block_{i}/attention/query": {"kernel": (D, H, K), "bias": (H, K)},
                f"block_{i}/attention/key": {"kernel": (D, H, K)},
                f"block_{i}/attention/value": {"kernel": (D, H, K), "bias": (H, K)},
                f"block_{i}/attention/out": {"kernel": (H, K, D), "bias": (D,)},
                f"block_{i}/norm_2": norm,
                f"block_{i}/linear_1": {"kernel": (D, F), "bias": (F,)},
                f"block_{i}/linear_2": {"kernel": (F, D), "bias": (D,)},
            }
        layers["norm"] = norm
        return {f"{layer}/{name}": shape for layer, leaf in layers.items() for name, shape in leaf.items()}

    def draw(self, path: str, shape: tuple[int, ...]) -> Array:
        """Kernels of variance 1/fan-in, embeddings of variance 1/D, scales around 1, biases of deviation 0.05."""
        bell = draw_bell(path, self.seed, shape)
        if path.endswith("scale"):
            return np.asarray(1 + 0.1 * bell)
        if path.endswith("bias"):
            return np.asarray(0.05 * bell)
        fan_in = self.heads * self.head_dim if path.endswith("out/kernel") else shape[0]
        return np.asarray(bell / np.sqrt(fan_in if path.endswith("kernel") else self.embed))

    def batches(self, count: int, batch: int) -> tuple[Batch, ...]:
        """``count`` different batches: tokens ``x`` (B, T) and the tokens that follow them ``y`` (B, T), both int32."""
        chains = [draw_chains(step, batch, self.length + 1, self.vocab, self.seed) for step in range(count)]
        return tuple({"x": tokens[:, :-1], "y": tokens[:, 1:]} for tokens in chains)

    def check_batch(self, batch: Batch, number: int) -> None:
        """Raises ``ValueError`` naming both shapes where a field is not what the model takes."""
        for name in ("x", "y"):
            if name not in batch:
                raise ValueError(f"batch {number} has the fields {sorted(batch)} and no {name!r}")
        examples = len(batch["x"])
        if not examples:
            raise ValueError(f"batch {number} is empty: x has shape {np.shape(batch['x'])}")
        for name in ("x", "y"):
            check_labels(f"batch {number} {name}", np.asarray(batch[name]), (examples, self.length), self.vocab)

    def train(self, parameters: Tree, batches: Sequence[Batch]) -> ReferenceTrajectory:
        """As every truth; with dropout each batch is told how many steps were taken before it."""
        numbered = [{**batch, "step": np.int32(step)} for step, batch in enumerate(batches)]
        return super().train(parameters, numbered if self.dropout else batches)

    @property
    def whole(self) -> GPTTruth:
        """The truth of the same network without dropout."""
        return replace(self, dropout=0.0)

    def evaluate(self, parameters: Tree, batches: Sequence[Batch]) -> Evaluation:
        """As every truth, of tokens; nothing is dropped."""
        return super(GPTTruth, self.whole).evaluate(parameters, batches)

    def logits(self, parameters: Values, x_BxT: np.ndarray) -> Rounded:
        """The outputs (B, T, V); nothing is dropped."""
        h_NxD, _ = self.whole.stream(parameters, x_BxT.ravel(), 0)
        h_NxD, _ = layer_norm(parameters, "norm", h_NxD)
        return reshape(h_NxD @ parameters["token_embedding/embedding"].T, (*x_BxT.shape, self.vocab))

    def loss_and_gradients(
        self, parameters: Values, batch: Mapping[str, np.ndarray], lean: float = 0
    ) -> tuple[Rounded, Gradients]:
        """The scalar mean loss and every parameter's gradient; nothing flips, so there is nothing to ``lean``."""
        table_VxD, x_N = parameters["token_embedding/embedding"], batch["x"].ravel()
        h_NxD, back_from_stream = self.stream(parameters, x_N, int(batch["step"]) if self.dropout else 0)
        h_NxD, back_from_norm = layer_norm(parameters, "norm", h_NxD)
        value, dlogits_NxV = softmax_cross_entropy(h_NxD @ table_VxD.T, batch["y"].ravel())
        dh_NxD, of_norm = back_from_norm(dlogits_NxV @ table_VxD)
        dtable_VxD, of_stream = back_from_stream(dh_NxD)
        of_table = {"token_embedding/embedding": dtable_VxD + dlogits_NxV.T @ h_NxD}
        gradients = of_table | of_stream | of_norm
        return value, {path: gradients[path] for path in parameters}

    def stream(self, parameters: Values, x_N: np.ndarray, step: int) -> tuple[Rounded, Pullback]:
        """The residual stream (N, D) that the blocks leave; its pullback gives the gradient of the token table."""
        positions_NxD = rearrange(
            parameters["position_embedding/embedding"],
            lambda a: np.broadcast_to(a, (x_N.size // self.length, *a.shape)).reshape(-1, self.embed),
        )
        h_NxD, pullbacks = look_up(parameters["token_embedding/embedding"], x_N) + positions_NxD, []
        for i in range(self.blocks):
            for site, norm, layer in ((2 * i, "norm_1", self.attention), (2 * i + 1, "norm_2", feed_forward)):
                normal_NxD, back_from_norm = layer_norm(parameters, f"block_{i}/{norm}", h_NxD)
                y_NxD, back_from_layer = layer(parameters, f"block_{i}", normal_NxD)
                h_NxD = h_NxD + self.drop(y_NxD, step, site)
                pullbacks.append((site, back_from_layer, back_from_norm))

        def pullback(dh_NxD: Rounded) -> tuple[Rounded, Gradients]:
            gradients: Gradients = {}
            for site, back_from_layer, back_from_norm in reversed(pullbacks):
                dnormal_NxD, of_layer = back_from_layer(self.drop(dh_NxD, step, site))
                dx_NxD, of_norm = back_from_norm(dnormal_NxD)
                dh_NxD = dh_NxD + dx_NxD
                gradients |= of_layer | of_norm
            dpositions_TxD = reshape(dh_NxD, (-1, self.length, self.embed)).sum(0)
            return scatter_add(dh_NxD, x_N, self.vocab), gradients | {"position_embedding/embedding": dpositions_TxD}

        return h_NxD, pullback

    def drop(self, y_NxD: Rounded, step: int, site: int) -> Rounded:
        """Dropout of one layer in one step, and its own transpose."""
        if not self.dropout:
            return y_NxD
        is_kept = draw_bernoulli(self.draw_key(step, site), 1 - self.dropout, y_NxD.value.shape)
        return rearrange(y_NxD / (1 - self.dropout), lambda a: np.where(is_kept, a, 0))

    def draw_key(self, step: int, site: int) -> Key:
        """What the mask of one layer in one step is drawn by."""
        return fold_in(fold_in(make_key(DROPOUT_SEED), step), site)

    def attention(self, parameters: Values, block: str, x_NxD: Rounded) -> tuple[Rounded, Pullback]:
        """Causal multi-head attention; a query's scores are divided by √K."""
        T, H, K, scale = self.length, self.heads, self.head_dim, 1 / sqrt(self.head_dim)

        def into_heads(a: Rounded) -> Rounded:
            return rearrange(a, lambda a: a.reshape(-1, T, H, K).transpose(0, 2, 1, 3))

        def out_of_heads(a: Rounded) -> Rounded:
            return rearrange(a, lambda a: a.transpose(0, 2, 1, 3).reshape(-1, H * K))

        made = {name: linear(parameters, f"{block}/attention/{name}", x_NxD) for name in ("query", "key", "value")}
        q_BxHxTxK, k_BxHxSxK, v_BxHxSxK = (into_heads(y_NxHK) for y_NxHK, _ in made.values())
        p_BxHxTxS = causal_softmax(q_BxHxTxK @ swap(k_BxHxSxK) * scale)
        y_NxD, back_from_out = linear(parameters, f"{block}/attention/out", out_of_heads(p_BxHxTxS @ v_BxHxSxK))

        def pullback(dy_NxD: Rounded) -> tuple[Rounded, Gradients]:
            do_NxHK, gradients = back_from_out(dy_NxD)
            do_BxHxTxK = into_heads(do_NxHK)
            dscore_BxHxTxS = softmax_backward(do_BxHxTxK @ swap(v_BxHxSxK), p_BxHxTxS) * scale
            into = {
                "query": dscore_BxHxTxS @ k_BxHxSxK,
                "key": swap(dscore_BxHxTxS) @ q_BxHxTxK,
                "value": swap(p_BxHxTxS) @ do_BxHxTxK,
            }
            inputs = []
            for name, (_, back) in made.items():
                dx_NxD, of_linear = back(out_of_heads(into[name]))
                inputs.append(dx_NxD)
                gradients |= of_linear
            return inputs[0] + inputs[1] + inputs[2], gradients

        return y_NxD, pullback


def feed_forward(parameters: Values, block: str, x_NxD: Rounded) -> tuple[Rounded, Pullback]:
    """Up to F, tanh-GELU, and down again."""
    z_NxF, back_from_up = linear(parameters, f"{block}/linear_1", x_NxD)
    y_NxD, back_from_down = linear(parameters, f"{block}/linear_2", gelu(z_NxF))

    def pullback(dy_NxD: Rounded) -> tuple[Rounded, Gradients]:
        dh_NxF, of_down = back_from_down(dy_NxD)
        dx_NxD, of_up = back_from_up(gelu_backward(dh_NxF, z_NxF))
        return dx_NxD, of_down | of_up

    return y_NxD, pullback


def linear(parameters: Values, name: str, x_NxD: Rounded) -> tuple[Rounded, Pullback]:
    """``x @ w + b`` over all of the kernel's input axes at once; a layer may have no bias."""
    kernel, bias = parameters[f"{name}/kernel"], parameters.get(f"{name}/bias")
    w_DxF = reshape(kernel, (x_NxD.value.shape[-1], -1))
    y_NxF = x_NxD @ w_DxF
    if bias:
        y_NxF = y_NxF + reshape(bias, (-1,))

    def pullback(dy_NxF: Rounded) -> tuple[Rounded, Gradients]:
        gradients = {f"{name}/kernel": reshape(x_NxD.T @ dy_NxF, kernel.value.shape)}
        if bias:
            gradients[f"{name}/bias"] = reshape(dy_NxF.sum(0), bias.value.shape)
        return dy_NxF @ w_DxF.T, gradients

    return y_NxF, pullback


def layer_norm(parameters: Values, name: str, x_NxD: Rounded) -> tuple[Rounded, Pullback]:
    """``x̂·scale + bias``."""
    scale_D, bias_D = parameters[f"{name}/scale"], parameters[f"{name}/bias"]
    xhat_NxD, inverse_Nx1 = normalise(x_NxD, EPSILON)

    def pullback(dy_NxD: Rounded) -> tuple[Rounded, Gradients]:
        dx_NxD = normalise_backward(dy_NxD * scale_D, xhat_NxD, inverse_Nx1)
        return dx_NxD, {f"{name}/scale": (dy_NxD * xhat_NxD).sum(0), f"{name}/bias": dy_NxD.sum(0)}

    return xhat_NxD * scale_D + bias_D, pullback


def reshape(x: Rounded, shape: tuple[int, ...]) -> Rounded:
    """The same values in another shape."""
    return rearrange(x, lambda a: a.reshape(shape))


def swap(x: Rounded) -> Rounded:
    """The transpose of the last two axes."""
    return rearrange(x, lambda a: a.swapaxes(-1, -2))
