"""Brackets, strings and comments: what every line of HLO text has in common."""

import re

COMMENT = re.compile(r"/\*.*?\*/")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_MARK = re.compile(rf"{_STRING.pattern}|[()\[\]{{}},]")


def is_open(text: str) -> bool:
    """Does a bracket or a string of this text end only in a later line?"""
    bare = _STRING.sub("", text)
    return '"' in bare or sum(map(bare.count, "([{")) > sum(map(bare.count, ")]}"))


def split(text: str, start: int) -> tuple[list[tuple[int, int]], int]:
    """Spans between commas outside brackets and strings, from `start` to the bracket that closes it (or the end)."""
    spans = []
    depth = 0
    begin = start
    for mark in _MARK.finditer(text, start):
        at = mark.start()
        character = text[at]
        if character == "," and depth == 0:
            spans.append((begin, at))
            begin = at + 1
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                return [*spans, (begin, at)], at
    return [*spans, (begin, len(text))], len(text)
