"""Where a compiled program leaves its devices for the host: callbacks, infeeds, outfeeds, host sends, host memory."""

from dataclasses import dataclass

from meshproof.hlo.module import Instruction
from meshproof.hlo.parser import parse

_ALWAYS = {"infeed", "outfeed"}
_IF_TO_HOST = {"send", "recv", "send-done", "recv-done"}
_HOST_MEMORY = "S(5)"  # as layouts spell it: JAX's pinned_host


@dataclass(frozen=True)
class HostMemory:
    """How many arguments and results of a program are in host memory, and how many copies it starts to there."""

    arguments: int
    results: int
    copies: int


def host_transfers(text: str) -> tuple[str, ...]:
    """Each instruction that leaves, as ``opcode name (line n …)``, but for copies to host memory: `host_memory`.

    Raises `HloError` as `parse` does.
    """
    return tuple(
        f"{instruction.opcode} {instruction.name} (line {instruction.line} of the compiled program)"
        for instruction in parse(text).instructions
        if _leaves_device(instruction)
    )


def host_memory(text: str) -> HostMemory:
    """What a program takes from, leaves in and copies to host memory. Raises `HloError` as `parse` does.

    XLA:CPU computes on host memory as on any other: only the layout of the entry computation tells.
    """
    module = parse(text)
    taken, _, left = module.attributes.get("entry_computation_layout", "").partition("->")
    copies = (each for each in module.instructions if each.opcode == "copy-start" and _HOST_MEMORY in each.type_text)
    return HostMemory(taken.count(_HOST_MEMORY), left.count(_HOST_MEMORY), sum(1 for _ in copies))


def _leaves_device(instruction: Instruction) -> bool:
    if instruction.opcode in _IF_TO_HOST:
        return instruction.attribute("is_host_transfer") == "true"
    if instruction.opcode == "custom-call":
        if "custom_call_target" not in instruction.attributes:
            raise instruction.refuse("expected a custom-call with custom_call_target=")
        return "callback" in instruction.attribute("custom_call_target")
    return instruction.opcode in _ALWAYS
