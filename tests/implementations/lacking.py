"""Strategies that lack members."""


class Nameless:
    """Has a name and nothing else."""

    name = "nameless"


class Unstartable:
    """Cannot be started."""

    name, framework, model, mesh_axes = "unstartable", "jax", "mlp", {"data": 1}

    def batches(self, count):
        """None."""
        return []


def strategies():
    """Both."""
    return [Nameless(), Unstartable()]
