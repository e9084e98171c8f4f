"""Numbers as text for people. A missing number is a dash."""

from __future__ import annotations

ABSENT = "—"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
LARGEST = 1024 ** len(UNITS)


def describe_bytes(amount: int | None) -> str:
    """Bytes with three digits and a binary unit, such as ``1.78 MiB``."""
    if amount is None:
        return ABSENT
    if abs(amount) >= LARGEST:
        return f"over {UNITS[-1]}"
    value, unit = float(amount), UNITS[0]
    for larger in UNITS[1:]:
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}" if abs(value) >= 1000 or unit == "B" else f"{value:.3g} {unit}"


def exact_bytes(amount: int | None) -> str:
    """Bytes with every digit, for a tooltip."""
    if amount is None:
        return "unknown"
    return f"{amount:,} bytes" if abs(amount) < LARGEST else describe_bytes(amount)


def describe_number(value: float | None, digits: int = 4) -> str:
    """A number with this many significant digits."""
    number = as_float(value)
    return ABSENT if number is None else f"{number:.{digits}g}"


def describe_change(old: int | None, new: int | None) -> str:
    """The growth of a number in percent; empty if it is the same or unknown."""
    if old is None or new is None or old == new:
        return ""
    if old <= 0:
        return "new"
    percent = as_float((new - old) * 100 / old) if new < old * 1000 else None
    return f"{percent:+.3g} %".replace("-", "−") if percent is not None else "over × 1000"


def as_float(value: float | None) -> float | None:
    """The number as a float; ``None`` for a JSON integer that is too large for one."""
    try:
        return None if value is None else float(value)
    except OverflowError:
        return None
