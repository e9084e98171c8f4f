"""Strategies with members that are not what they must be."""

from jax.sharding import PartitionSpec

from meshproof.contract import Communication, Contract
from tests.implementations.minimal import Trainer


def odd(**members):
    """The minimal trainer with some members replaced."""
    trainer = Trainer()
    vars(trainer).update(members)
    return trainer


def line(axis):
    """Of a budget, over an axis or a part of it."""
    return Communication("all-gather", (axis,), "activations", 4)


class Breaking(Trainer):
    """The minimal trainer, with a contract that cannot be made."""

    @property
    def contract(self):
        """Of a type that no clause knows."""
        return Contract(compute_dtype="float8_e4m3fn")


def strategies():
    """One for each fault."""
    return [
        Trainer,
        odd(model=7),
        odd(mesh_axes=[("data", 1)]),
        odd(contract={}),
        odd(contract=Contract(parameters={"*": PartitionSpec("model")})),
        odd(mesh_axes={"data": 8}, contract=Contract({"*": PartitionSpec("data:(1)2")}, step=(line("data:(1)2"),))),
        odd(mesh_axes={"data": 8}, contract=Contract(step=(line("data:(1)3"), line("data:(2)2")))),
        Breaking(),
    ]
