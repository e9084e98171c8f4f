"""Which programs find a largest or smallest float between devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshproof.hlo import HloError
from meshproof.hlo.reducers import takes_extremes


def sharded(dtype=jnp.float32):
    """What each of eight devices has one of."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))
    return jax.ShapeDtypeStruct((8,), dtype, sharding=NamedSharding(mesh, P("data")))


def compiled(function, over):
    """As XLA has it."""
    return jax.jit(function).lower(over).compile()


@pytest.mark.parametrize(
    ("function", "dtype", "takes"),
    [
        (jnp.max, jnp.float32, True),
        (jnp.min, jnp.bfloat16, True),
        (lambda x: jax.nn.softmax(x).sum(), jnp.float32, True),
        (jnp.sum, jnp.float32, False),
        (jnp.max, jnp.int32, False),
        (lambda x: jnp.maximum(x, 0), jnp.float32, False),
    ],
)
def test_extremes_are_found(function, dtype, takes):
    """Of floats, by which devices are reduced."""
    assert takes_extremes(compiled(function, sharded(dtype)).as_text()) is takes


def test_xla_drops_nan_there():
    """Should this fail, XLA:CPU keeps NaN: NUM-13 may judge these steps as the others."""
    over = sharded()
    seen = jax.device_put(np.array([np.nan, *[1.0] * 7], np.float32), over.sharding)
    assert compiled(jnp.max, over)(seen) == 1


def test_what_cannot_be_read_is_refused():
    """With the census's error."""
    with pytest.raises(HloError):
        takes_extremes("HloModule nothing")
