"""What is planned for: a model by its sizes, and those that have a name."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from meshproof.planning import memory, rooflines

SLACK = 0.05
"""Norms, biases and positions: the share by which a count of matrices may miss a model's parameters."""

ROUNDED = 0.01
"""How far below its count a number of parameters may be that somebody rounded."""

LARGEST_VOCABULARY = 300_000


class PlanError(ValueError):
    """What was asked cannot be planned; the message has both numbers and what to do."""


@dataclass(frozen=True)
class Model:
    """Sizes of a stack of equal layers; 0 where something is not known. ``parameters`` is all of them.

    ``length`` is the tokens of a sequence: a batch is split between sequences. Of other models only ``flops`` are
    known, operations of a whole step on one ``unit`` of the batch, and ``saved``, numbers that wait for its backward
    pass.
    Raises `PlanError` if the sizes contradict each other.
    """

    name: str
    parameters: float
    layers: int = 0
    d_model: int = 0
    d_ff: int = 0
    heads: int = 0
    kv_heads: int = 0
    vocabulary: int = 0
    tied: bool | None = None
    length: int = 0
    flops: float = 0
    saved: float = 0
    unit: str = "token"
    batch: float = 0
    source: str = ""

    def __post_init__(self) -> None:
        sizes = {"--layers": self.layers, "--d-model": self.d_model, "--d-ff": self.d_ff}
        if self.parameters < 1 or min(*sizes.values(), self.heads, self.kv_heads, self.vocabulary, self.length) < 0:
            raise PlanError("expected sizes above 0")
        absent = [name for name, size in sizes.items() if not size]
        if absent and len(absent) < len(sizes):
            raise PlanError(
                f"{' and '.join(sizes.keys() - {*absent})} without {' and '.join(absent)}: give all of them"
            )
        if self.heads and self.d_model % self.heads:
            near = next(each for each in range(self.heads, 0, -1) if self.d_model % each == 0)
            raise PlanError(f"--heads {self.heads}: expected a divisor of --d-model {self.d_model}, such as {near}")
        if self.kv_heads and (not self.heads or self.heads % self.kv_heads):
            why = f"does not divide --heads {self.heads}" if self.heads else "without --heads: give both"
            raise PlanError(f"--kv-heads {self.kv_heads} {why}")
        if self.layers:
            self._check_parameters()

    def _check_parameters(self) -> None:
        hidden, square = self.d_model * self.d_ff, self.d_model**2
        least, most = self.layers * (2 * square + 2 * hidden), self.layers * (4 * square + 3 * hidden)
        words = self.vocabulary or LARGEST_VOCABULARY
        upper = most + memory.vocabulary_parameters(words, self.d_model, tied=self.tied is True)
        lower = least + memory.vocabulary_parameters(self.vocabulary, self.d_model, tied=self.tied is not False)
        if not lower * (1 - SLACK) <= self.parameters <= upper * (1 + SLACK):
            raise PlanError(
                f"--params {self.parameters:.4g} contradicts the other sizes: {self.layers} layers of {self.d_model} × "
                f"{self.d_ff} have {least:.4g} to {most:.4g} parameters, with the vocabulary {lower:.4g} to "
                f"{upper:.4g}; "
                f"a layer has 2 to 4 times d_model² in attention and 2 or 3 times d_model · d_ff"
            )

    @property
    def is_stack(self) -> bool:
        """Whether its layers are known: else it can be split over its batch only."""
        return self.layers > 0

    @cached_property
    def is_tied(self) -> bool:
        """Whether the unembedding is the embedding: as told, else if the parameters leave no room for a second one."""
        if self.tied is not None:
            return self.tied
        attention = self.d_model + (self.kv_width if self.heads else 0)
        least = 2 * self.layers * self.d_model * (attention + self.d_ff)
        two = memory.vocabulary_parameters(self.vocabulary, self.d_model)
        return self.parameters - two < least * (1 - (ROUNDED if self.heads else SLACK))

    @cached_property
    def embedding(self) -> float:
        """Parameters of the embedding and the unembedding; without a vocabulary they are counted to the layers."""
        return memory.vocabulary_parameters(self.vocabulary, self.d_model, self.is_tied) if self.is_stack else 0.0

    @cached_property
    def layer(self) -> float:
        """Parameters of one layer; of all where layers are not known."""
        return (self.parameters - self.embedding) / (self.layers or 1)

    @cached_property
    def kv_width(self) -> float:
        """Of keys, and of values."""
        return self.d_model * self.kv_heads / self.heads if self.kv_heads else self.d_model

    @cached_property
    def is_gated(self) -> bool:
        """Whether the hidden layer has a third matrix, by the parameters."""
        attention = 2 * self.d_model * (self.d_model + self.kv_width)
        return self.layer - attention > 2.5 * self.d_model * self.d_ff

    @cached_property
    def saved_numbers(self) -> float:
        """Numbers of one layer and token that wait for the backward pass, if nothing is recomputed.

        Inputs of both norms, of queries, keys and values, of scores (these three), of the output, of the hidden layer;
        and inside that its output before and after it is activated, with a gate a third. Scores are not kept, and
        nothing is dropped. Korthikanti et al. 2022, equation 1.
        """
        if not self.is_stack:
            return self.saved
        return 6 * self.d_model + 2 * self.kv_width + (3 if self.is_gated else 2) * self.d_ff

    def step_flops(self, batch: float) -> float:
        """Operations that a step on so many tokens (or images) needs: what is looked up, or recomputed, is none."""
        if not self.is_stack:
            return self.flops * batch if self.flops else rooflines.train_flops(self.parameters, batch)
        looked_up = 0 if self.is_tied else self.vocabulary * self.d_model
        attention = rooflines.attention_flops(self.layers, self.d_model, self.length, batch)
        return rooflines.train_flops(self.parameters - looked_up, batch) + attention


@cache
def models() -> dict[str, Model]:
    """Those that have a name."""
    told = tomllib.loads((files(__package__) / "models.toml").read_text(encoding="utf-8"))
    return {name: Model(name, **sizes) for name, sizes in told.items()}


def find_model(name: str) -> Model:
    """A model by name. Raises `PlanError` for one that there is not, naming those there are."""
    if name not in models():
        raise PlanError(f"--config {name}: no model of this name; expected one of {', '.join(models())}")
    return models()[name]
