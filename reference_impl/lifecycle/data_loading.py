"""Data: one global order of packed rows, of which each process reads its own, and which resumes at any step.

                 follows from                     is on process p of n
    order        seed and epoch                   the same
    packing      the order, first fit             the same: a buffer of a few rows, filled with short texts
    batch        the next rows of the order       the p-th of n equal blocks of it
    state        epoch, place in order, buffer    the same, for any number of processes

A batch is whole before it is divided, so that the examples of a step do not depend on how many processes read them:
what 2 processes saved, 4 continue. A state says where the buffer began to be filled and how many of its rows were
given out; it is filled again. An epoch ends with a row that is padded, and the next epoch's rows follow in the same
batch: every text is read once before any is read again.

Every process packs every row, which is arithmetic on tokens that are there already. `ShuffledBatches`, on which the
loop trains, packs nothing, and reads only what a process keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import grain
import jax
import numpy as np
from grain.experimental import FirstFitPackIterDataset

from meshproof.contract import Batch
from reference_impl.lifecycle.training_data import CORPUS, Shuffled, check_same, digest_of, order

LENGTH, ROWS, BUFFER = 128, 4, 3
"""Tokens of a row, rows of a global batch, and rows of the packing buffer, of the sonnets."""

STEPS, AHEAD = 1 << 40, 2
"""More batches than anybody trains on, and how many of them are read before they are asked for."""


class PackedTexts:
    """Endless batches, the block of rows of one process. Text 1 is the first; 0 is padding.

    ``tokens``, ``segments`` (the texts of a row, counted from 1), ``positions`` (in its text) and ``text`` (which one)
    are int32 arrays (rows / processes, length). Raises ``ValueError`` where texts do not fit a row, or processes rows,
    and for a size below 1.
    """

    elastic = True

    def __init__(
        self, texts: Sequence[np.ndarray], length: int, rows: int, buffer: int, seed: int, process: int, processes: int
    ) -> None:
        check_sizes(length=length, rows=rows, buffer=buffer, processes=processes)
        long = [f"text {number} has {len(text)}" for number, text in enumerate(texts, 1) if not 0 < len(text) <= length]
        if long or not texts:
            raise ValueError(f"expected texts of 1 to {length} tokens, saw {'; '.join(long) or 'no text'}")
        if not 0 <= process < processes or rows % processes:
            raise ValueError(
                f"process {process} of {processes} and a global batch of {rows} rows: expected a process from 0 to "
                f"{processes - 1}, and rows that {processes} processes share equally"
            )
        self.numbered = [{"tokens": t, "text": np.full(len(t), number, np.int32)} for number, t in enumerate(texts, 1)]
        self.length, self.rows, self.buffer, self.seed = length, rows, buffer, seed
        self.block = slice(process * rows // processes, (process + 1) * rows // processes)
        self.begin(0)

    @property
    def examples(self) -> int:
        """How many texts an epoch has."""
        return len(self.numbered)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the rows of a batch follow from: seed, sizes, and a digest of all texts in their order."""
        sizes = {"seed": self.seed, "tokens of a row": self.length, "rows of a batch": self.rows}
        sizes |= {"rows of the buffer": self.buffer, "number of texts": self.examples}
        return sizes | {"digest of all texts": digest_of(("text", text["tokens"]) for text in self.numbered)}

    def begin(self, epoch: int) -> None:
        """The first row of an epoch is next."""
        texts = grain.MapDataset.source([self.numbered[place] for place in order(epoch, self.seed, self.examples)])
        packed = FirstFitPackIterDataset(
            texts.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
            length_struct={"tokens": self.length, "text": self.length},
            num_packing_bins=self.buffer,
            shuffle_bins=False,
            meta_features=("text",),
        )
        self.epoch, self.packed = epoch, iter(packed)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        chosen = [self.row() for _ in range(self.rows)][self.block]
        names = {"tokens": "tokens", "segments": "tokens_segment_ids", "positions": "tokens_positions", "text": "text"}
        return {name: np.stack([row[packed] for row in chosen]) for name, packed in names.items()}

    def row(self) -> dict[str, np.ndarray]:
        """The next row of the global order."""
        try:
            return next(self.packed)
        except StopIteration:
            self.begin(self.epoch + 1)
            return next(self.packed)

    def get_state(self) -> dict[str, Any]:
        """Where the global order continues, and of which texts, as JSON can hold it; the same on every process."""
        return {"data": self.identity, "epoch": self.epoch, "packed": self.packed.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue there. Raises ``ValueError`` where the state is of other texts, or another seed or size."""
        check_same(state["data"], self.identity)
        self.begin(state["epoch"])
        self.packed.set_state(state["packed"])

    def ids(self, batch: Batch) -> list[int]:
        """The texts that a batch holds: where each begins."""
        return [int(text) for text in batch["text"][(batch["positions"] == 0) & (batch["segments"] > 0)]]


class ShuffledBatches:
    """The endless batches of a shuffled data set, the rows of one of ``readers`` equal blocks; read ahead by Grain.

    Its place is that behind the batch which was returned last, however far it has read: of ``AHEAD`` batches that wait,
    none is skipped by a resume. Raises ``ValueError`` where the readers do not share a batch equally, or are none.
    """

    elastic = True

    def __init__(self, data: Shuffled, reader: int, readers: int) -> None:
        check_sizes(readers=readers)
        if not 0 <= reader < readers or data.batch_size % readers:
            raise ValueError(
                f"reader {reader} of {readers} and a global batch of {data.batch_size} examples: expected a reader "
                f"from 0 to {readers - 1}, and examples that {readers} readers share equally"
            )
        rows = data.batch_size // readers
        own = slice(reader * rows, (reader + 1) * rows)
        steps = grain.MapDataset.range(STEPS).map(lambda step: {k: v[own] for k, v in data.batch(int(step)).items()})
        self.data, self.batches = data, iter(steps.to_iter_dataset(grain.ReadOptions(1, AHEAD)))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch: Batch = next(self.batches)
        return batch

    @property
    def step(self) -> int:
        """How many batches were returned, over all epochs."""
        return int(self.batches.get_state()["next_index"])

    def get_state(self) -> dict[str, Any]:
        """Where it continues, and of which data, as JSON can hold it; the same for any number of readers."""
        return {"data": self.data.identity, "batches": self.batches.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue there. Raises ``ValueError`` where the state is of other data, or another seed or batch."""
        check_same(state["data"], self.data.identity)
        self.batches.set_state(state["batches"])


def check_sizes(**sizes: int) -> None:
    """Raises ``ValueError`` for a size below 1, by its name."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}: expected 1 or more")


def data_iterator(process: int, processes: int) -> PackedTexts:
    """The lines of three sonnets, packed: what DAT-1 judges of the book."""
    lines = filter(None, CORPUS.read_text(encoding="ascii").splitlines())
    texts = [np.array([ord(letter) - 31 for letter in line], np.int32) for line in lines]
    return PackedTexts(texts, LENGTH, ROWS, BUFFER, seed=0, process=process, processes=processes)


def global_arrays(sharding: jax.sharding.Sharding, rows: Batch) -> dict[str, jax.Array]:
    """Global arrays, of which this process brings the rows that its devices hold.

    They are the same for any number of processes where the mesh has a process's devices beside each other.
    """
    return {name: jax.make_array_from_process_local_data(sharding, field) for name, field in rows.items()}
