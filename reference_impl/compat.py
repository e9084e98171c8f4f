"""The few names that moved within the supported window of JAX."""

from __future__ import annotations

import jax


def varying(value: jax.Array, axis: str | tuple[str, ...]) -> jax.Array:
    """``value``, replicated over ``axis`` (one or several) in ``shard_map``, typed as if every device had its own.

    A gradient with respect to it is then this device's own: nothing is summed over ``axis`` behind one's back.
    Called ``pvary`` up to JAX 0.8.1, ``pcast`` from 0.8.2 on.
    """
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, axis, to="varying")
    return jax.lax.pvary(value, axis)  # type: ignore[attr-defined]
