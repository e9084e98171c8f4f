"""The one exception of this package: text that cannot be read for certain is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

_SHOWN = 120


class HloError(ValueError):
    """Compiled HLO text that this package cannot account for.

    `line` and `column` are 1-based positions in the text that was handed in (both 1 where the whole text is meant).
    """

    def __init__(self, problem: str, line: int = 1, column: int = 1, text: str = "") -> None:
        self.line = line
        self.column = column
        shown = f"\n  {_shorten(text, column)}" if text.strip() else ""
        super().__init__(f"line {line}, column {column}: {problem}{shown}")


@contextmanager
def refuse_depth() -> Iterator[None]:
    """Refuses what is nested deeper than Python's stack: a chain of thousands of operations, or of calls."""
    try:
        yield
    except RecursionError:
        raise HloError("computations or chains of operations nested too deeply to be followed") from None


def unknown(problem: str) -> str:
    """The message for a spelling that this package does not know: it asks to report the line."""
    return f"{problem}; nothing was counted. If this is real compiler output, report it with this line"


def _shorten(text: str, column: int) -> str:
    start = max(0, min(column - 1 - _SHOWN // 3, len(text) - _SHOWN))
    cut = text[start : start + _SHOWN].strip()
    return ("… " if start > 0 else "") + cut + (" …" if start + _SHOWN < len(text) else "")
