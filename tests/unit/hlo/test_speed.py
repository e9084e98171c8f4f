"""Parsing and counting take time linear in the text."""

import gc
import re
import time
from collections.abc import Callable
from functools import partial

from meshproof.hlo import census, parse
from tests.unit.hlo.texts import module, stored

# Measured on a quiet core: about 20 MB/s on the densest text, 30 to 50 on others. Machines that run tests are not
# quiet: this floor only catches a fall by a factor.
FLOOR_MB_PER_S = 3


def repeated(times: int) -> str:
    """A program that calls a real FSDP+TP step many times, each copy in computations of its own."""
    header, _, bodies = stored("cpu-0.12.0.1-scanned_layers").partition("\n%")
    bodies = f"%{bodies}".replace("ENTRY ", "")
    names = set(re.findall(r"^%(\S+) \(", bodies, re.MULTILINE))
    main, signature = re.findall(r"^%(\S+) \(.*\) -> (.*) \{$", bodies, re.MULTILINE)[-1]
    parameters = re.findall(r"^  %(\S+ = .* parameter\(\d+\))", bodies.rpartition(f"%{main} ")[2], re.MULTILINE)
    operands = ", ".join(f"%{line.split()[0]}" for line in parameters)
    copies, calls = [], [f"  %{line}" for line in parameters]
    for copy in range(times):
        copies.append(re.sub(r"%([\w.\-]+)", lambda m, c=copy: f"{m[0]}.copy{c}" if m[1] in names else m[0], bodies))
        calls.append(f"  %call.{copy} = {signature} call({operands}), to_apply=%{main}.copy{copy}")
    calls[-1] = calls[-1].replace("  %", "  ROOT %", 1)
    return "\n".join([header, "", *copies, f"ENTRY %main () -> {signature} {{", *calls, "}", ""])


def fastest(*works: Callable[[], object]) -> list[float]:
    """Processor time of the fastest of seven runs of each, in turn: what slows the machine down slows all of them.

    No garbage is looked for meanwhile: that goes through all that tests before have left, the more often the more is
    made, and took four times the tensors to 7.6 times the time.
    """
    times: list[list[float]] = [[] for _ in works]
    gc.disable()
    try:
        for _ in range(7):
            for taken, work in zip(times, works, strict=True):
                start = time.process_time()
                work()
                taken.append(time.process_time() - start)
    finally:
        gc.enable()
    return [min(taken) for taken in times]


def test_repeated_text_counts_as_often() -> None:
    """The text of the speed tests is real work: twice the copies move twice the bytes."""
    mesh = {"data": 2, "model": 4}
    one, four = census(repeated(1), mesh), census(repeated(4), mesh)
    assert [entry.bytes for entry in four] == [4 * (entry.bytes or 0) for entry in one]


def test_time_is_linear() -> None:
    """Text of twice the size takes no more than 2.7 times the time, to parse and to count."""
    mesh = {"data": 2, "model": 4}
    small, large = repeated(16), repeated(32)
    size = len(large) / len(small)
    for work in (parse, lambda text: census(text, mesh)):
        one, two = fastest(partial(work, small), partial(work, large))
        assert two / one < 2.7 * size / 2, f"text of {size:.2f} times the size took {two / one:.2f} times the time"


def test_one_huge_tuple_is_linear() -> None:
    """A combined all-reduce of four times the tensors takes no more than 2.7² times the time; quadratic is 16."""

    def combined(count: int) -> str:
        types = ", ".join(["f32[64]{0}"] * count)
        takes = [f"%g{i} = f32[64]{{0}} get-tuple-element(%r), index={i}" for i in range(count)]
        reduce = f"({types}) all-reduce({', '.join(['%p'] * count)}), <everybody>"
        lines = ["%p = f32[64]{0} parameter(0)", f"%r = {reduce}", *takes, "ROOT %o = f32[64]{0} copy(%g0)"]
        return module("\n".join(lines))

    small, large = combined(1500), combined(6000)
    assert census(large, {"data": 8})[0].tensors == 6000
    one, two = fastest(partial(census, small, {"data": 8}), partial(census, large, {"data": 8}))
    assert two / one < 2.7**2, f"four times the tensors took {two / one:.2f} times the time"


def test_speed_is_not_lost(record_property: Callable[[str, object], None]) -> None:
    """The census reads several megabytes a second; the figure is recorded with the test's result."""
    text = repeated(32)
    [seconds] = fastest(partial(census, text, {"data": 2, "model": 4}))
    rate = len(text) / 1e6 / seconds
    record_property("megabytes_per_second", rate)
    assert rate > FLOOR_MB_PER_S, f"{rate:.1f} MB/s"
