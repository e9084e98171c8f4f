"""What a step must hold, in bytes.

``parameters`` counts numbers, ``…_bytes`` is the width of one of them. Adam keeps two moments for each parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32, BFLOAT16 = 4, 2
COPIES = 4
"""Parameters, gradients and two moments, all of one width."""

SAVED_PER_LAYER = 20
"""Numbers of width D that a layer leaves for its backward pass if nothing is recomputed, about: Scaling Book, "All the
Transformer math"."""


@dataclass(frozen=True)
class Precision:
    """Bytes of a parameter at rest, of its gradient, of its moments together, and of either where it is moved.

    ``share_on_gpu`` is how much of the bfloat16 peak its products reach on a GPU.
    """

    name: str
    parameter: int
    gradient: int
    moments: int
    moved: int
    share_on_gpu: float = 1.0

    @property
    def state(self) -> int:
        """Bytes that stay for one parameter from step to step."""
        return self.parameter + self.moments


PRECISIONS = {
    each.name: each
    for each in (
        Precision("mixed", FLOAT32, FLOAT32, 2 * FLOAT32, BFLOAT16),
        Precision("bfloat16", BFLOAT16, BFLOAT16, 2 * FLOAT32, BFLOAT16),
        Precision("float32", FLOAT32, FLOAT32, 2 * FLOAT32, FLOAT32, share_on_gpu=0.5),
    )
}
"""``mixed``: the parameters at rest in float32, the products in bfloat16. ``float32`` is TF32 in the products of a GPU,
which NVIDIA's datasheets give half the bfloat16 figure, and bfloat16 passes on a TPU."""


MOMENTS = {"adam": 2, "momentum": 1, "sgd": 0}
"""Numbers that an optimizer keeps for each parameter, in float32."""


def training_bytes(parameters: float, width: float = FLOAT32, copies: float = COPIES) -> float:
    """Parameters, gradients and moments without a word of activations: four copies of one width."""
    return parameters * width * copies


def adam_state_bytes(parameters: float, parameter_bytes: float = BFLOAT16) -> float:
    """Parameters and two float32 moments: 10 bytes a parameter in bfloat16. (Scaling Book, "How to parallelize".)"""
    return parameters * (parameter_bytes + 2 * FLOAT32)


def largest_replicated_model(memory: float, bytes_per_parameter: float = BFLOAT16 + 2 * FLOAT32) -> float:
    """Parameters that data parallelism holds at most: the chip's memory over 10 bytes. (Scaling Book, the same.)"""
    return memory / bytes_per_parameter


def largest_sharded_bytes(memory: float, devices: float, copies: float = COPIES) -> float:
    """Bytes of the largest model that FSDP holds, without activations: memory · N / 4."""
    return memory * devices / copies


def largest_sharded_model(memory: float, devices: float, width: float = FLOAT32, copies: float = COPIES) -> float:
    """Its parameters."""
    return largest_sharded_bytes(memory, devices, copies) / width


def zero_bytes(
    stage: int, parameters: float, devices: float, parameter: float = 2, gradient: float = 2, optimizer: float = 12
) -> float:
    """Model state on each of ``devices`` under ZeRO's ``stage``; 0 is data parallelism, 3 is FSDP.

    Stage 1 splits the optimizer's state, 2 gradients too, 3 parameters too. Rajbhandari et al. 2020, "ZeRO", figure 1:
    mixed precision, whose optimizer keeps float32 parameters beside two moments, 12 bytes.
    """
    if stage not in range(4):
        raise ValueError(f"ZeRO stage {stage}: expected 0 (data parallel), 1, 2 or 3 (FSDP)")
    split = [devices if stage >= least else 1 for least in (3, 2, 1)]
    return parameters * sum(width / ways for width, ways in zip((parameter, gradient, optimizer), split, strict=True))


def saved_bytes(
    tokens: float, D: float, layers: float, per_layer: float = SAVED_PER_LAYER, width: float = BFLOAT16
) -> float:
    """Activations that wait for the backward pass: so many of width D a layer and token.

    1 a layer is what recomputing whole blocks leaves. Scaling Book, "All the Transformer math".
    """
    return width * per_layer * tokens * D * layers


def hidden_activation_bytes(tokens: float, D: float, F: float, layers: float, width: float = BFLOAT16) -> float:
    """Activations if the outputs of the three products of a gated layer are kept: D + 2F. (Scaling Book, exercises.)"""
    return width * layers * tokens * (D + 2 * F)


def transformer_activation_bytes(
    tokens: float, D: float, length: float = 0, heads: float = 0, tensor: float = 1, sequence_parallel: bool = True
) -> float:
    """Activations of one layer of a GPT with F = 4D, dropout and GELU: s·b·h·(34 + 5·a·s/h), split by ``tensor``.

    Without ``heads`` no scores are kept, as under flash attention. Without ``sequence_parallel`` 10 of the 34 are not
    split. Korthikanti et al. 2022, "Reducing activation recomputation in large Transformer models", table 2.
    """
    scores = 5 * heads * length / D
    whole = 0 if sequence_parallel else 10
    return tokens * D * (whole + (34 - whole + scores) / tensor)


def vocabulary_parameters(vocabulary: float, D: float, tied: bool = False) -> float:
    """Of the embedding, and of the unembedding where it is another matrix."""
    return vocabulary * D * (1 if tied else 2)


def attention_parameters(layers: float, D: float, heads: float, kv_heads: float, head_width: float) -> float:
    """Queries and outputs of all heads, keys and values of their own. (Scaling Book, "Training LLaMA 3 on TPUs".)"""
    return layers * 2 * D * head_width * (heads + kv_heads)


def hidden_parameters(layers: float, D: float, F: float, matrices: int = 3) -> float:
    """Of the hidden layers: three matrices with a gate, else two."""
    return layers * matrices * D * F
