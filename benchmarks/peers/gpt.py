"""The book's GPT-2 in PyTorch: the same shapes, dtypes, loss and Adam, in PyTorch's fastest form.

Dims as in `reference_impl.models.gpt`: B batch, T length, V vocabulary, D embed, H heads, K head_dim, F mlp. Kernels
keep the book's shapes, (D, H, K) and so on, so that its parameters are loaded as they are. Keys have no bias.

Parameters, gradients and moments are float32. Each step casts the parameters to the compute dtype, and the logits back
to float32, which is where `reference_impl.modifiers.precision` casts: autocast would keep more in float32 and be
another program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, gelu, layer_norm, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

EPSILON = 1e-6
"""Added to the variance in layer normalisation."""


@dataclass(frozen=True)
class Spec:
    """What is trained: sizes, compute dtype, whether blocks are recomputed in the backward pass, Adam's numbers."""

    embed: int
    heads: int
    head_dim: int
    blocks: int
    dtype: str
    rematerialised: bool
    learning_rate: float
    b1: float
    b2: float
    eps: float


class GPT(torch.nn.Module):
    """The model, its float32 parameters by the paths of the book."""

    def __init__(self, spec: Spec, parameters: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.spec, self.dtype = spec, getattr(torch, spec.dtype)
        self.leaves = torch.nn.ParameterDict({path: torch.tensor(value) for path, value in parameters.items()})

    def forward(self, x_BxT: Tensor, y_BxT: Tensor) -> Tensor:
        """The scalar mean cross-entropy over B·T tokens, in float32."""
        w = {path: leaf.to(self.dtype) for path, leaf in self.leaves.items()}
        table_VxD = w["token_embedding/embedding"]
        h_BxTxD = embedding(x_BxT, table_VxD) + w["position_embedding/embedding"]
        for i in range(self.spec.blocks):
            block = {path: leaf for path, leaf in w.items() if path.startswith(f"block_{i}/")}
            if self.spec.rematerialised:
                h_BxTxD = checkpoint(self.block, block, f"block_{i}", h_BxTxD, use_reentrant=False)
            else:
                h_BxTxD = self.block(block, f"block_{i}", h_BxTxD)
        logits_BxTxV = linear(self.normalise(w, "norm", h_BxTxD), table_VxD)
        return cross_entropy(logits_BxTxV.flatten(0, 1).float(), y_BxT.flatten())

    def block(self, w: Mapping[str, Tensor], name: str, h_BxTxD: Tensor) -> Tensor:
        """The residual stream behind a block."""
        h_BxTxD = h_BxTxD + self.attention(w, f"{name}/attention", self.normalise(w, f"{name}/norm_1", h_BxTxD))
        z_BxTxF = self.apply_kernel(w, f"{name}/linear_1", self.normalise(w, f"{name}/norm_2", h_BxTxD))
        return h_BxTxD + self.apply_kernel(w, f"{name}/linear_2", self.activate(z_BxTxF))

    def normalise(self, w: Mapping[str, Tensor], name: str, x_BxTxD: Tensor) -> Tensor:
        """Layer normalisation over D."""
        return layer_norm(x_BxTxD, (self.spec.embed,), w[f"{name}/scale"], w[f"{name}/bias"], EPSILON)

    def attention(self, w: Mapping[str, Tensor], name: str, x_BxTxD: Tensor) -> Tensor:
        """Causal multi-head attention, by PyTorch's fused kernel if it has one."""
        into_heads = (*x_BxTxD.shape[:2], self.spec.heads, self.spec.head_dim)
        q_BxHxTxK, k_BxHxTxK, v_BxHxTxK = (
            self.apply_kernel(w, f"{name}/{part}", x_BxTxD).view(into_heads).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        o_BxHxTxK = scaled_dot_product_attention(q_BxHxTxK, k_BxHxTxK, v_BxHxTxK, is_causal=True)
        return self.apply_kernel(w, f"{name}/out", o_BxHxTxK.transpose(1, 2).flatten(2))

    def activate(self, z_BxTxF: Tensor) -> Tensor:
        """GELU in its tanh form."""
        return gelu(z_BxTxF, approximate="tanh")

    def apply_kernel(self, w: Mapping[str, Tensor], name: str, x_BxTxN: Tensor) -> Tensor:
        """``x @ w + b`` over all of the kernel's input axes at once; keys have no bias."""
        y_BxTxM = x_BxTxN @ w[f"{name}/kernel"].reshape(x_BxTxN.shape[-1], -1)
        bias = w.get(f"{name}/bias")
        return y_BxTxM if bias is None else y_BxTxM + bias.flatten()


def make_adam(spec: Spec, model: torch.nn.Module, fused: bool) -> torch.optim.Optimizer:
    """Kingma and Ba's Adam, bias-corrected and with ε outside the root, as optax has it; ``fused`` in one kernel."""
    betas = (spec.b1, spec.b2)
    return torch.optim.Adam(model.parameters(), lr=spec.learning_rate, betas=betas, eps=spec.eps, fused=fused)
