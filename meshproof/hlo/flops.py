"""Floating-point operations of one product, from its shapes: two for each multiplication and its addition.

Padded positions of a convolution are counted as if they were multiplied, so that for one it is an upper bound: XLA:TPU
writes batched products as convolutions with padding.
"""

import re
from math import prod

from meshproof.hlo.module import Instruction

LIBRARY = re.compile(r'custom_call_target="[^"]*(gemm|matmul|conv)', re.IGNORECASE)
_CONTRACTED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"\s]*)[\]}]')
_LABELS = re.compile(r"\bdim_labels=\w+_(\w+)->\w+")


def is_product(instruction: Instruction) -> bool:
    """Is it a matrix product or a convolution, or a library's call for one?"""
    called = instruction.opcode == "custom-call" and instruction.search(LIBRARY) is not None
    return called or instruction.opcode in ("dot", "convolution")


def product_flops(product: Instruction) -> int | None:
    """The operations of a product; ``None`` where the text does not tell which dimensions are contracted."""
    operands = [operand.shapes for operand in product.operands[:2]]
    if len(operands) < 2 or not all(operands):
        return None
    (left, *_), (right, *_) = operands
    results = product.shapes[0].elements
    if (contracted := product.search(_CONTRACTED)) is not None:
        places = [int(place) for place in re.findall(r"\d+", contracted[1])]
        known = all(place < len(left.dimensions) for place in places)
        return 2 * results * prod(left.dimensions[place] for place in places) if known else None
    if product.opcode == "convolution" and (labels := product.search(_LABELS)) is not None:
        kernel = dict(zip(labels[1], right.dimensions, strict=False))
        return 2 * results * prod(size for label, size in kernel.items() if label != "o")
    return None
