"""What a GPU adds in another order each time it runs: two runs of such a program differ in their last bits."""

import re

from meshproof.hlo.module import Instruction
from meshproof.hlo.parser import parse
from meshproof.hlo.phases import read_paths

_FLOATS = re.compile(r"b?f\d|c\d")
_CUDNN = re.compile(r"__cudnn\$\w*Backward")


def sums_in_any_order(text: str) -> tuple[str, ...]:
    """Each such instruction of a program for GPUs, as ``opcode shape, path of its operation``.

    A scatter of floats is done by atomic operations where several of its updates may meet in one element: a gradient of
    an embedding, of a gather, of a maximum over windows. cuDNN's backward kernels may add so. Under
    ``--xla_gpu_exclude_nondeterministic_ops=true`` XLA sorts the updates of a scatter first, and tells cuDNN. Raises
    `HloError` as `parse` does.
    """
    return tuple(_told(each) for each in parse(text).instructions if _adds_in_any_order(each))


def _adds_in_any_order(instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return bool(_CUDNN.search(instruction.attribute("custom_call_target")))
    scatters = instruction.opcode == "scatter" and instruction.attribute("unique_indices") != "true"
    return scatters and any(_FLOATS.match(shape.dtype) for shape in instruction.shapes)


def _told(instruction: Instruction) -> str:
    shape = ",".join(map(str, instruction.shapes[0].dimensions))
    return " ".join([instruction.opcode, f"{instruction.shapes[0].dtype}[{shape}],", *read_paths(instruction)[:1]])
