"""A trainer whose contract has a pattern that matches no parameter: one finding, told once."""

from dataclasses import replace

from jax.sharding import PartitionSpec as P

from tests.healthy.idioms import Trainer


class Misdeclared(Trainer):
    """Its kernels have other names."""

    name = "misdeclared"

    @property
    def contract(self):
        """As after a module was renamed."""
        return replace(super().contract, parameters={"dense_*": P("data"), "*": P()})


def strategies():
    """The one."""
    return [Misdeclared()]
