"""What the loop trains on: a synthetic regression, three sonnets of Shakespeare by characters, or drawn labels.

A batch is a function of the seed and the step alone. Who reads them in turn has a place, which is saved with the state:
see `data_loading.ShuffledBatches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from meshproof.contract import Batch
from reference_impl.models import Model
from reference_impl.models.mlp import MLP
from reference_impl.truth import Momentum
from reference_impl.truth.data import draw_bell, draw_words, float32

CORPUS = Path(__file__).with_name("sonnets.txt")
"""Sonnets 18, 116 and 130 of William Shakespeare, printed in 1609: in the public domain."""

EXAMPLES = 2048
"""How many examples the synthetic regression has."""


@dataclass(frozen=True)
class Shuffled:
    """A data set whose every epoch has another order, drawn from the seed; the tail that fills no batch is left out.

    Raises ``ValueError`` where it has fewer examples than a batch.
    """

    fields: dict[str, np.ndarray]
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.batch_size <= self.examples:
            raise ValueError(
                f"the data set has {self.examples} examples: expected a batch of 1 to {self.examples}, "
                f"saw {self.batch_size}"
            )

    @property
    def examples(self) -> int:
        """How many examples it has."""
        return len(self.fields["x"])

    @property
    def steps_per_epoch(self) -> int:
        """How many whole batches it has."""
        return self.examples // self.batch_size

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the batch of a step follows from: seed, sizes, and a digest of all examples."""
        sizes = {"seed": self.seed, "batch size": self.batch_size, "number of examples": self.examples}
        return sizes | {"digest of all examples": digest_of(sorted(self.fields.items()))}

    def batch(self, step: int) -> Batch:
        """The global batch of this step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        chosen = order(epoch, self.seed, self.examples)[place * self.batch_size : (place + 1) * self.batch_size]
        return {name: field[chosen] for name, field in self.fields.items()}


def digest_of(named: Iterable[tuple[str, np.ndarray]]) -> str:
    """Twelve digits that change with any element, name, dtype or shape, and with the order of the arrays."""
    content = blake2b(digest_size=6)
    for name, array in named:
        content.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return content.hexdigest()


def check_same(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises ``ValueError`` where the place that was saved is one in other data, and ``KeyError`` where that is not
    said in full."""
    for name, now in own.items():
        if (was := saved[name]) != now:
            raise ValueError(
                f"it was saved of {name} {was}, and there now is {now}: its place would be at other examples. "
                f"Train on what the run began with, or begin a new run"
            )


def order(epoch: int, seed: int, examples: int) -> np.ndarray:
    """The order of so many examples in one epoch, their places (N,): drawn at once, with no buffer to save."""
    return np.argsort(draw_words(f"epoch/{epoch}", seed, examples), kind="stable")


def fields_for(network: Model) -> dict[str, np.ndarray]:
    """All examples of the data set that fits a model: text for language models, targets for perceptrons, and for any
    other what its truth draws for the suites."""
    plain = network.plain
    if isinstance(plain, MLP) and plain.criterion == "mean_squared_error":
        return regression(plain.widths[0], plain.widths[-1])
    if set(network.batch_axes) == {"x", "y"} and network.batch_axes["x"] == ("batch", "length"):
        return windows(CORPUS.read_text(encoding="ascii"), vars(plain)["length"], vars(plain)["vocab"])
    [drawn] = network.truth(Momentum()).batches(1, EXAMPLES)
    return dict(drawn)


def regression(inputs: int, outputs: int) -> dict[str, np.ndarray]:
    """x (N, inputs), bell-shaped; y (N, outputs), each the standardised sum of the squares of its share of x."""
    x_NxD = draw_bell("regression", 0, (EXAMPLES, inputs))
    sums_NxC = np.stack([np.square(x_NxD[:, i::outputs]).sum(-1) for i in range(outputs)], axis=-1)
    return {"x": float32(x_NxD), "y": float32((sums_NxC - sums_NxC.mean(0)) / sums_NxC.std(0))}


def windows(text: str, length: int, vocab: int) -> dict[str, np.ndarray]:
    """x (N, length) and y, each character's next; a window begins every ``length // 2`` characters.

    A newline is token 0, the printable ASCII characters are 1 to 95. Raises ``ValueError`` where a model knows fewer.
    """
    tokens = np.array([0 if letter == "\n" else ord(letter) - 31 for letter in text], np.int32)
    if tokens.max() >= vocab:
        raise ValueError(f"the text has token {tokens.max()}: expected a vocabulary of at least 96, saw {vocab}")
    starts = np.arange(0, len(tokens) - length, length // 2)
    places = starts[:, None] + np.arange(length + 1)
    return {"x": tokens[places[:, :-1]], "y": tokens[places[:, 1:]]}
