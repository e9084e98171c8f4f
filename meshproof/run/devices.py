"""The one place where the number of devices is set: before any test can start JAX."""

import jax
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give this process as many virtual CPU devices as were asked for."""
    jax.config.update("jax_num_cpu_devices", config.getoption("devices"))
    if "native" not in (config.getoption("target") or ()):
        jax.config.update("jax_platforms", "cpu")
