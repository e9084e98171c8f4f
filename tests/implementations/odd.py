"""Strategies with members that are not what they must be."""

from jax.sharding import PartitionSpec

from meshproof.contract import Contract
from tests.implementations.minimal import Trainer


def odd(**members):
    """The minimal trainer with some members replaced."""
    trainer = Trainer()
    vars(trainer).update(members)
    return trainer


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
        Breaking(),
    ]
