"""How a page becomes a trainer: handed to the compiler (plain JAX, NNX, Linen), or run in ``shard_map`` or ``pmap``."""
