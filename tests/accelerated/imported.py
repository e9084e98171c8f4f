"""A trainer whose module asks on import where it is: ``--impl tests.accelerated.imported --target gpu:h200:8``."""

import jax

from tests.accelerated import DroppedOnCpu

ON_CPU = jax.default_backend() == "cpu"


class DroppedOnImport(DroppedOnCpu):
    """Its constraints are left away where the module was imported on a CPU."""

    on_cpu = ON_CPU


def strategies():
    """Healthy on an accelerator alone."""
    return [DroppedOnImport("healthy_unless_imported_on_a_cpu", overlap=None)]
