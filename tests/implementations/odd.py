"""Strategies with members that are not what they must be."""

from jax.sharding import PartitionSpec

from meshproof.contract import Contract
from tests.implementations.minimal import Trainer


def odd(**members):
    """The minimal trainer with some members replaced."""
    trainer = Trainer()
    vars(trainer).update(members)
    return trainer


def strategies():
    """One for each fault."""
    return [
        Trainer,
        odd(model=7),
        odd(mesh_axes=[("data", 1)]),
        odd(contract={}),
        odd(contract=Contract(parameters={"*": PartitionSpec("model")})),
    ]
