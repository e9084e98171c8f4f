"""How long is the forward pass alone? A step adds gradients, their synchronisation and an update."""

import pytest

from meshproof.cases import has_member

from .timing import time_windows
from .window import ForwardWindow


@pytest.mark.fewer
def test_forward_time(ready, step, judges, benchmark, size, asked):
    """The time of K forward passes from one state, each loss judged."""
    if not has_member(ready.strategy, "loss"):
        pytest.skip(f"{ready.id}: the strategy has no loss")
    time_windows(benchmark, ForwardWindow(ready, judges), size, asked=asked)
