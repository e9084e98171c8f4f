"""The one exception of this package: text that cannot be read for certain is refused, never guessed at."""

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


def unknown(problem: str) -> str:
    """The message for a spelling nobody has taught this package yet: it asks for the report that would."""
    return f"{problem}; nothing was counted. If this is real compiler output, report it with this line"


def _shorten(text: str, column: int) -> str:
    start = max(0, min(column - 1 - _SHOWN // 3, len(text) - _SHOWN))
    cut = text[start : start + _SHOWN].strip()
    return ("… " if start > 0 else "") + cut + (" …" if start + _SHOWN < len(text) else "")
