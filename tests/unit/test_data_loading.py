"""Data of the book: what is packed and in which order, what resumes, and what is refused in which words."""

import json
import re

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from reference_impl.lifecycle.data_loading import PackedTexts, data_iterator, global_arrays


def packed(process=0, processes=1, seed=0, rows=4, lengths=(3, 5, 7, 2, 8, 4, 6), length=8, buffer=2):
    """Seven short texts in rows of 8 tokens; text n is n, over and over."""
    texts = [np.full(tokens, number, np.int32) for number, tokens in enumerate(lengths, 1)]
    return PackedTexts(texts, length, rows, buffer, seed, process, processes)


def taken(iterator, steps):
    """The texts of each of the next batches."""
    return [iterator.ids(next(iterator)) for _ in range(steps)]


def test_a_row_holds_whole_texts():
    """Beside each other, numbered from 1, positions from 0, and zeros behind them."""
    for batch in (batch for batch, _ in zip(packed(), range(6), strict=False)):
        for tokens, segments, positions, text in zip(*batch.values(), strict=True):
            assert list(batch) == ["tokens", "segments", "positions", "text"] and len(tokens) == 8
            assert (tokens == text).all()
            numbers = [number for number in segments if number]
            assert numbers == sorted(numbers) and set(numbers) == set(range(1, max(numbers) + 1))
            for number in set(numbers):
                assert list(positions[segments == number]) == list(range((segments == number).sum()))
                assert len(set(text[segments == number])) == 1
                assert (segments == number).sum() == (3, 5, 7, 2, 8, 4, 6)[text[segments == number][0] - 1]
            assert not tokens[segments == 0].any()


def test_an_epoch_is_every_text_once_and_another_order():
    """Read in single rows, so that no batch holds the end of one epoch and the start of the next."""
    iterator = packed(rows=1)
    read = [text for ids in taken(iterator, 24) for text in ids]
    epochs = [read[start : start + 7] for start in range(0, 21, 7)]
    assert all(sorted(epoch) == list(range(1, 8)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_a_seed_is_an_order():
    """The same again, and another."""
    assert taken(packed(seed=1), 6) == taken(packed(seed=1), 6) != taken(packed(seed=2), 6)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_read_the_blocks_of_one_batch(processes):
    """In the order of the processes they are what one process reads, bit for bit."""
    whole, parts = packed(), [packed(process, processes) for process in range(processes)]
    for _ in range(8):
        batch, blocks = next(whole), [next(part) for part in parts]
        assert all((np.concatenate([block[name] for block in blocks]) == batch[name]).all() for name in batch)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 4), (4, 2)])
def test_a_state_resumes_on_any_number_of_processes(before, after):
    """At every step, also amid a buffer and between two epochs, through JSON."""
    saved = packed(before - 1, before)
    whole = [next(batches) for batches in [packed()] for _ in range(16)]
    for step in range(12):
        state = json.loads(json.dumps(saved.get_state()))
        fresh = [packed(process, after) for process in range(after)]
        for iterator in fresh:
            iterator.set_state(state)
        for batch in whole[step : step + 4]:
            rows = np.concatenate([next(iterator)["tokens"] for iterator in fresh])
            assert (rows == batch["tokens"]).all(), step
        next(saved)


def test_the_books_data_is_its_sonnets():
    """42 lines, in rows that characters fill well."""
    iterator = data_iterator(0, 1)
    batch = next(iterator)
    assert iterator.examples == 42 and batch["tokens"].shape == (4, 128)
    assert (batch["segments"] > 0).mean() > 0.7 and 1 <= batch["tokens"].max() <= 95


def test_global_arrays_hold_the_rows():
    """Four rows, one on each of four devices."""
    batch = next(data_iterator(0, 1))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("data",))
    arrays = global_arrays(NamedSharding(mesh, PartitionSpec("data")), batch)
    for name, field in batch.items():
        assert arrays[name].addressable_shards[3].data.shape == (1, 128)
        assert (np.asarray(arrays[name]) == field).all()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"lengths": (3, 9)}, "expected texts of 1 to 8 tokens, saw text 2 has 9"),
        ({"lengths": (0, 3)}, "expected texts of 1 to 8 tokens, saw text 1 has 0"),
        ({"lengths": ()}, "expected texts of 1 to 8 tokens, saw no text"),
        ({"processes": 3}, "4 rows: expected a process from 0 to 2, and rows that 3 processes share equally"),
        ({"processes": -2}, "processes is -2: expected 1 or more"),
        ({"rows": 0}, "rows is 0: expected 1 or more"),
        ({"buffer": 0}, "buffer is 0: expected 1 or more"),
        ({"length": 0}, "length is 0: expected 1 or more"),
        ({"process": 2, "processes": 2}, "process 2 of 2 and a global batch of 4 rows: expected a process from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, complaint):
    """With the numbers."""
    with pytest.raises(ValueError, match=re.escape(complaint)):
        packed(**arguments)


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"seed": 1}, "of seed 1, and there now is 0"),
        ({"lengths": (1, 2)}, "of number of texts 2, and there now is 7"),
        ({"lengths": (6, 4, 8, 2, 7, 5, 3)}, "of digest of all texts [0-9a-f]{12}, and there now is [0-9a-f]{12}: its"),
        ({"length": 9}, "of tokens of a row 9, and there now is 8"),
        ({"rows": 2}, "of rows of a batch 2, and there now is 4"),
        ({"buffer": 3}, "of rows of the buffer 3, and there now is 2"),
    ],
)
def test_a_state_of_another_order_is_refused(other, complaint):
    """It would continue with other examples."""
    with pytest.raises(ValueError, match=complaint):
        packed().set_state(packed(**other).get_state())


def test_a_state_that_does_not_say_of_which_texts_is_refused():
    """By what it lacks: that is damage, and no other data set."""
    state = packed().get_state()
    del state["data"]["rows of the buffer"]
    with pytest.raises(KeyError, match="rows of the buffer"):
        packed().set_state(state)
