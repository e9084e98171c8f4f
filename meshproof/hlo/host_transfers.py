"""Where a compiled program leaves its devices for the host: callbacks, infeeds, outfeeds, host sends, host memory."""

from collections.abc import Iterator

from meshproof.hlo.module import Instruction, Module
from meshproof.hlo.parser import parse

_ALWAYS = {"infeed", "outfeed"}
_IF_TO_HOST = {"send", "recv", "send-done", "recv-done"}
_HOST_MEMORY = "S(5)"  # as layouts spell it: JAX's pinned_host


def host_transfers(text: str) -> tuple[str, ...]:
    """Each instruction that leaves, as ``opcode name (line n …)``, and how many arguments and results are on the host.

    Raises `HloError` as `parse` does.
    """
    module = parse(text)
    leaving = (
        f"{instruction.opcode} {instruction.name} (line {instruction.line} of the compiled program)"
        for instruction in module.instructions
        if _leaves_device(instruction)
    )
    return (*leaving, *_kept_in_host_memory(module))


def _leaves_device(instruction: Instruction) -> bool:
    if instruction.opcode in _IF_TO_HOST:
        return instruction.attribute("is_host_transfer") == "true"
    if instruction.opcode == "custom-call":
        if "custom_call_target" not in instruction.attributes:
            raise instruction.refuse("expected a custom-call with custom_call_target=")
        return "callback" in instruction.attribute("custom_call_target")
    if instruction.opcode == "copy-start":
        return _HOST_MEMORY in instruction.type_text
    return instruction.opcode in _ALWAYS


def _kept_in_host_memory(module: Module) -> Iterator[str]:
    """XLA:CPU computes on host memory as on any other: only the layout of the entry computation tells."""
    taken, _, left = module.attributes.get("entry_computation_layout", "").partition("->")
    for arrays, which in ((taken, "arguments"), (left, "results")):
        if count := arrays.count(_HOST_MEMORY):
            yield f"{count} of the {which} in host memory, {_HOST_MEMORY}: every run moves them between host and device"
