"""A loader that pads a batch which does not divide: whether its mask counts those given, and its loss only them.

What is padded is found by the mask that the contract names. The padding is then filled with other numbers, of which the
loss must not depend in a single bit: a product with 0 is 0. And the loss is that of one device on the examples alone,
where nothing is padded. To count a padded example moves a mean over n of them by a share of 1/n at least, so half of
that is allowed, which float32 never needs.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from meshproof.cases import has_member
from meshproof.contract import Batch, leaves
from meshproof.observing.alone import on_one_device
from meshproof.observing.members import canonical, scalar
from meshproof.observing.state import host
from meshproof.observing.subject import Subject


def shortened(subject: Subject) -> Batch:
    """The first batch without its last example."""
    return {field: value[:-1] for field, value in subject.host_batches[0].items()}


def padding(subject: Subject, short: Batch) -> str:
    """What is wrong with the batch that ``shard_batch`` makes of these examples, if anything is."""
    name, rows = subject.case.contract.mask, len(next(iter(short.values())))
    if name is None:
        return "the contract names no mask"
    placed = canonical(subject.strategy.shard_batch(short), "shard_batch")
    held = {path: merged(subject, value) for path, value in host(placed).items()}
    if name not in held:
        return f"the batch has no {name!r}, which the contract names as its mask"
    mask = held[name]
    given = np.asarray(short[name]) if name in short else np.ones((rows, *mask.shape[1:]), mask.dtype)
    if mask.sum() != given.sum():
        return f"expected {name} to count {given.sum():g} of {mask.size}, saw it count {mask.sum():g}"
    for path, field in leaves(short):
        value = np.asarray(field)
        if path != name and value.shape[: mask.ndim] == given.shape:
            counted = value[given.astype(bool)].astype(held[path].dtype)
            if not np.array_equal(held[path][mask.astype(bool)], counted):
                return f"expected the examples that {name} counts to be those given, saw others in {path}"
    return loss_of_padding(subject, placed, mask, short)


def merged(subject: Subject, value: np.ndarray) -> np.ndarray:
    """A field with its examples in one dimension."""
    return value.reshape(-1, *value.shape[2:]) if subject.case.contract.device_dimension else value


def loss_of_padding(subject: Subject, placed: Any, mask: np.ndarray, short: Batch) -> str:
    """What is wrong with the loss of a padded batch; nothing is said where the strategy has no ``loss``."""
    if not subject.has("loss"):
        return ""
    state, name = subject.fresh(), subject.case.contract.mask
    padded = scalar(subject.ask("loss", state, placed), "loss")
    hidden = mask == 0

    def refill(path: str, array: jax.Array) -> jax.Array:
        value = np.array(array)
        shape = mask.shape[: hidden.ndim]
        if path == name or value.dtype.kind != "f" or merged(subject, value).shape[: mask.ndim] != shape:
            return array
        flat = merged(subject, value)
        flat[hidden] += 1
        return jax.device_put(flat.reshape(value.shape), array.sharding)

    refilled = {path: refill(path, array) for path, array in leaves(placed)}
    if (other := scalar(subject.ask("loss", state, refilled), "loss")) != padded:
        return f"expected a loss that no padding changes, saw {padded:.9g} and, with other padding, {other:.9g}"
    if not subject.has("single_device") or not subject.has("parameters"):
        return ""
    trainer = on_one_device(subject.strategy, "float32")
    if not all(has_member(trainer, member) for member in ("load", "loss", "shard_batch")):
        return ""
    alone = scalar(
        trainer.loss(trainer.load(subject.strategy.parameters(subject.fresh())), trainer.shard_batch(short)), "loss"
    )
    if abs(padded - alone) > abs(alone) / (2 * len(mask)):
        return f"expected the loss of the examples alone, {alone:.9g} on one device, saw {padded:.9g}"
    return ""
