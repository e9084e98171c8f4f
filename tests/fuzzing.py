"""How the fuzz tests run: few examples, always the same. ``FUZZ=20000 pytest tests -k damage`` tries more.

What is found is kept as an explicit example beside the test.
"""

import os
import re
import signal
from contextlib import contextmanager

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings

LONGEST_SECONDS = 10
"""A text of some thousand lines is read in milliseconds; what takes this long on any machine hangs."""

TOKENS = re.compile(r"[A-Za-z_][\w.-]*|\d+|[ \t]+|.", re.DOTALL)
CUTS = {"lines": lambda text: text.splitlines(keepends=True), "tokens": TOKENS.findall, "characters": list}


def fuzz(examples):
    """The settings of a fuzz test that usually tries so many."""
    asked = os.environ.get("FUZZ")
    return settings(
        max_examples=int(asked or examples),
        derandomize=not asked,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@contextmanager
def bounded():
    """Ends what hangs with a ``TimeoutError``, of which hypothesis finds the smallest example like any other."""

    def stop(*_):
        raise TimeoutError(f"still busy after {LONGEST_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@st.composite
def damaged(draw, text, scraps=("",), cuts=tuple(CUTS), most=3):
    """The text with up to ``most`` of its lines, tokens or characters lost, doubled, swapped or replaced."""
    for _ in range(draw(st.integers(1, most))):
        parts = CUTS[draw(st.sampled_from(cuts))](text)
        if not parts:
            return text
        places = st.integers(0, len(parts) - 1)
        at = draw(places)
        match draw(st.sampled_from(["lose", "double", "swap", "copy", "replace"])):
            case "lose":
                del parts[at]
            case "double":
                parts.insert(at, parts[at])
            case "swap":
                other = draw(places)
                parts[at], parts[other] = parts[other], parts[at]
            case "copy":
                parts[at] = parts[draw(places)]
            case "replace":
                parts[at] = draw(st.sampled_from(scraps))
        text = "".join(parts)
    return text
