"""The sizes of ``--size``: each is the name of an implementation, resolved as ``--impl`` is."""

from __future__ import annotations

from meshproof.cases import REFERENCE

SIZES = {
    "book": REFERENCE,
    "tiny": f"{REFERENCE}.sizes.tiny",
    "sweep": f"{REFERENCE}.sizes.sweep",
    "small": f"{REFERENCE}.sizes.small",
    "mlp-8192": f"{REFERENCE}.sizes.mlp_8192",
    "gpt2-124m": f"{REFERENCE}.sizes.gpt2_124m",
    "gpt2-124m-padded": f"{REFERENCE}.sizes.gpt2_124m_padded",
    "gpt2-xl-1.5b": f"{REFERENCE}.sizes.gpt2_xl_1_5b",
    "gpt2-xl-1.5b-padded": f"{REFERENCE}.sizes.gpt2_xl_1_5b_padded",
}
"""In order of the bytes that a step needs; ``book`` is every case that the suites judge."""

ON_CPU, ON_ACCELERATOR = "tiny", "small"
"""The default size."""


def size_of(implementation: str) -> str:
    """The size of an implementation; your own is called by its name."""
    return next((size for size, module in SIZES.items() if module == implementation), implementation)
