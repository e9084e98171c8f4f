"""How what JAX makes of a program grows with its depth and its width: equations, instructions, seconds.

Counts are the same every time. With layers that cost the same, and what there is once, they grow at most in proportion
to depth, and not with width. Seconds are those of the processor, not of the clock, and medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from meshproof.observing.members import origin
from meshproof.observing.seen import Failed, Seen
from meshproof.operations.growing import GrowingProgram
from meshproof.operations.growing.measuring import COMPILED, JAXPR, LOWERED, LOWERING, TRACING, Measured, measure

DEPTHS, WIDTHS = (6, 24), (16, 64)
SIZES = (DEPTHS[0], WIDTHS[0]), (DEPTHS[1], WIDTHS[0]), (DEPTHS[0], WIDTHS[1])

SLACK = {JAXPR: 1.25, LOWERED: 1.25, COMPILED: 2.0, TRACING: 1.5, LOWERING: 1.5}
"""By which each may exceed proportion; squares make sixteenfold of a program four times as deep.

XLA computes cheap sums again in each fusion that uses them: with a constant in every layer its instructions grew 5.6
times. With six other busy processes on two cores, medians of seconds were at most in proportion.
"""

STEADY = 2.0
"""By which seconds may exceed that where nothing should grow: there they are few."""


@dataclass(frozen=True)
class Growth:
    """What is counted and timed of one program at two sizes, and how many times as large the second may be."""

    of: str
    what: str
    sizes: tuple[str, str]
    saw: tuple[float, float]
    allowed: float

    @property
    def margin(self) -> float:
        """The growth over what is allowed."""
        return self.saw[1] / max(self.saw[0], 1e-9) / self.allowed


@dataclass(frozen=True)
class ProgramSeen:
    """A program at all its sizes, and how it grows from the first to each other."""

    sizes: tuple[Measured, ...]
    growths: tuple[Growth, ...]


def observe_growth(program: GrowingProgram, note: Callable[[str], object]) -> Seen[ProgramSeen]:
    """Trace, lower and compile it at two depths and two widths; ``note`` is told of each before."""
    try:
        measure(program, 2, WIDTHS[0])  # what is made once in a process
        found = []
        for depth, width in SIZES:
            note(f"depth {depth}, width {width}")
            found.append(measure(program, depth, width))
    except Exception as error:
        return Failed(f"expected a program that compiles, saw {type(error).__name__}: {error} ({origin(error)})")
    small, deeper, wider = ({**each.counts, **each.seconds} for each in found)
    deep = 1.0 if program.looped else DEPTHS[1] / DEPTHS[0]
    growths = *grown("depth", DEPTHS, small, deeper, deep), *grown("width", WIDTHS, small, wider, 1.0)
    return ProgramSeen(tuple(found), growths)


def grown(
    of: str, sizes: tuple[int, int], small: Mapping[str, float], large: Mapping[str, float], linear: float
) -> Iterator[Growth]:
    """Each measure at two sizes; the growth that is in proportion is ``linear``."""
    for what, slack in SLACK.items():
        allowed = linear * slack * (STEADY if what in (TRACING, LOWERING) and linear == 1 else 1)
        yield Growth(of, what, (f"{of} {sizes[0]}", f"{of} {sizes[1]}"), (small[what], large[what]), allowed)


def excessive(growths: tuple[Growth, ...]) -> Iterator[str]:
    """A sentence for each measure that grows faster than it may."""
    for growth in growths:
        if growth.margin > 1:
            (small, large), (first, second) = growth.saw, growth.sizes
            yield (
                f"{growth.what}: {small:.4g} at {first}, {large:.4g} at {second}: {large / max(small, 1e-9):.3g} times "
                f"that, allowed {growth.allowed:.3g}"
            )
