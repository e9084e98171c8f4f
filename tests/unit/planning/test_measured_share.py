"""What a device reaches of its peak makes products longer, and nothing else; and steps that were measured agree."""

from dataclasses import replace

import pytest

from meshproof.planning.advice import needed_tokens
from meshproof.planning.document import answer, document
from meshproof.planning.layouts import Layout
from meshproof.planning.models import Model
from tests.unit.planning.plans import plan, question

MEASURED = {
    "gpt2-124m": ((124_430_592, 12, 768, 3072), 50_257, 16_384, 0.0403, 0.351, 10.14e9),
    "gpt2-124m-padded": ((124_466_688, 12, 768, 3072), 50_304, 16_384, 0.0337, 0.42, 11.7e9),
    "gpt2-xl-1.5b": ((1_557_534_400, 48, 1600, 6400), 50_257, 8192, 0.185, 0.459, 49.9e9),
}
"""One H200, docs/benchmarks.md: parameters, layers and widths; words, tokens of a step; seconds, MFU, bytes."""


@pytest.mark.parametrize("size", MEASURED)
def test_a_step_that_was_measured_took_as_long_as_its_mfu_says(size):
    """Without it the plan is a floor, of less than half of the time; memory is within a third of the program's."""
    sizes, words, tokens, seconds, reached, held = MEASURED[size]
    asked = question(Model(size, *sizes, vocabulary=words, length=1024, tied=True), "h200", 1, tokens)
    assert 0.3 * seconds < plan(asked).seconds < 0.5 * seconds
    found = replace(asked, mfu=reached).plan(Layout())
    assert found.seconds == pytest.approx(seconds, rel=0.01) and found.mfu == pytest.approx(reached)
    assert 0.9 * held < found.memory.total < 1.35 * held


def test_slower_products_hide_more():
    """What moves takes as long as before, and fewer tokens a device are needed to hide it."""
    asked = question("llama-8b", "h100", 64)
    half = replace(asked, mfu=0.5)
    fast, slow = (plan(each, zero=3, data=64) for each in (asked, half))
    assert slow.math == 2 * fast.math and slow.comms == fast.comms
    assert needed_tokens(half, Layout(3, data=64)) == needed_tokens(asked, Layout(3, data=64)) / 2
    assert document(answer(half))["hardware"]["mfu"] == 0.5
