"""How a page becomes a trainer: handed to the compiler (plain JAX, Flax NNX), or run as it is in ``shard_map``."""
