"""The counter of compilations sees, or says that it cannot."""

import jax
import pytest

from meshproof.observing import compilations


@pytest.fixture
def fresh():
    """Forget the listener that this process has."""
    compilations.watchers.cache_clear()
    yield
    compilations.watchers.cache_clear()


def test_a_new_function_is_counted_and_a_known_one_is_not():
    """The first call of a function is traced, lowered and compiled; the second is nothing."""
    function = jax.jit(lambda x: x * 3)
    with compilations.compilations_of() as first:
        function(1.0)
    with compilations.compilations_of() as second:
        function(2.0)
    assert set(first) >= compilations.EVENTS and second == []


def test_a_deaf_counter_is_an_error(fresh, monkeypatch):
    """Where JAX names its events otherwise nothing is counted as zero: the error says what was missed."""
    register = jax.monitoring.register_event_duration_secs_listener

    def renamed(listen):
        register(lambda event, seconds, **more: listen(event.replace("backend_compile", "compile"), seconds, **more))

    monkeypatch.setattr(jax.monitoring, "register_event_duration_secs_listener", renamed)
    with pytest.raises(RuntimeError, match="reported no backend_compile"), compilations.compilations_of():
        pass
