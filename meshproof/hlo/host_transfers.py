"""Where a compiled program leaves its devices for the host: callbacks, infeeds, outfeeds, host sends."""

from meshproof.hlo.parser import Instruction, parse

_ALWAYS = {"infeed", "outfeed"}
_IF_TO_HOST = {"send", "recv", "send-done", "recv-done"}


def host_transfers(text: str) -> tuple[str, ...]:
    """Each instruction that does, as ``opcode name (line n)``. Raises `HloError` as `parse` does."""
    return tuple(
        f"{instruction.opcode} {instruction.name} (line {instruction.line} of the compiled program)"
        for computation in parse(text).computations.values()
        for instruction in computation.instructions
        if _leaves_device(instruction)
    )


def _leaves_device(instruction: Instruction) -> bool:
    if instruction.opcode in _IF_TO_HOST:
        return instruction.attributes.get("is_host_transfer", ("", 0))[0] == "true"
    if instruction.opcode == "custom-call":
        if "custom_call_target" not in instruction.attributes:
            raise instruction.refuse("expected a custom-call with custom_call_target=")
        return "callback" in instruction.attributes["custom_call_target"][0]
    return instruction.opcode in _ALWAYS
