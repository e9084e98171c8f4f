"""Every row of docs/sources.md leads to a page and to a clause or test, and these are about what the row teaches."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from docs.sources import Row, read, sections
from meshproof.judging.spec import read_clauses
from meshproof.planning import pipelining, rooflines
from meshproof.targets import find_chip

ROOT = Path(__file__).parents[2]
ROWS = [row for rows in read().values() for row in rows]


def plain(text):
    """In small letters, whatever joins the words: ``all_gather`` is ``all-gather``."""
    return re.sub(r"[\s_-]+", " ", text.lower())


@cache
def said(place):
    """What a page, a document below a heading, or a test says. Raises ``LookupError`` if it is not there."""
    path, _, test = place.partition("::")
    path, _, heading = path.partition("#")
    file = ROOT / path
    if not file.is_file():
        raise LookupError(f"{path} is no file")
    text = file.read_text(encoding="utf-8")
    if file.name.startswith("test_"):
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name == test:
                begin = min(part.lineno for part in (node, *node.decorator_list))
                return plain("\n".join(text.splitlines()[begin - 1 : node.end_lineno]))
        raise LookupError(f"{place} names no test of its file")
    if file.suffix != ".md":
        return plain(text)
    if heading not in sections(file):
        raise LookupError(f"{place} names no heading of its document")
    return plain(" ".join(sections(file)[heading]))


def faults(row, clauses):
    """What is wrong with a row."""
    where, places = f"{row.source}, {row.section}", []
    if not (row.section and row.teaches) or bool(row.shown) != bool(row.checked) or not (row.shown or row.but):
        yield f"{where}: expected what it teaches, where it is shown and what checks it, or why neither is here"
    for name in row.checked:
        if "/" not in name and name not in clauses:
            yield f"{where}: no suite judges {name}"
        if "/" in name and not Path(name).name.startswith("test_"):
            yield f"{where}: {name} is no test"
    for place in (*row.shown, *(name for name in row.checked if "/" in name)):
        try:
            places.append(said(place))
        except LookupError as error:
            yield f"{where}: {error}"
        else:
            if not any(plain(word) in places[-1] for word in row.words):
                yield f"{where}: {place} has none of {', '.join(row.words)}"
    for word in map(plain, row.words):
        if word not in plain(f"{row.section} {row.teaches}"):
            yield f"{where}: {word} is no word of the row"
        if not any(word in place for place in places):
            yield f"{where}: {word} is nowhere that the row names"


@pytest.fixture(scope="module")
def clauses():
    """Every clause that a suite judges."""
    return {clause.id for clause in read_clauses(ROOT)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.source}-{row.section[:30]}")
def test_no_row_is_empty(row, clauses):
    """Each has a page and a check, and both exist and have a word of the row; or it says why neither is here."""
    assert list(faults(row, clauses)) == []


def test_every_source_is_walked():
    """All five, and no section twice."""
    assert {row.source for row in ROWS} == {"000", "001", "002", "003", "004"}
    named = [(row.source, row.section, row.teaches) for row in ROWS]
    assert len(set(named)) == len(named) > 130


MEASURING = "tests/unit/benchmarks/test_measuring.py"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shown": ()}, "expected what it teaches"),
        ({"checked": ()}, "expected what it teaches"),
        ({"shown": (), "checked": (), "but": ""}, "or why neither is here"),
        ({"shown": ("gone.py",)}, "gone.py is no file"),
        ({"shown": ("docs/planning.md",)}, "docs/planning.md names no heading"),
        ({"shown": ("docs/planning.md#chips",)}, "docs/planning.md#chips has none of trace, idle"),
        ({"checked": ("NUM-99",)}, "no suite judges NUM-99"),
        ({"checked": ("meshproof/cli.py",)}, "is no test"),
        ({"checked": (MEASURING,)}, f"{MEASURING} names no test"),
        ({"checked": (f"{MEASURING}::test_a_trace_is_kept",)}, "names no test"),
        ({"checked": (f"{MEASURING}::test_utilisation_is_of_a_known_peak",)}, "peak has none of trace, idle"),
        ({"words": ("trace", "idle", "compile")}, "compile is no word of the row"),
        ({"words": ("trace", "idle", "TensorBoard")}, "tensorboard is nowhere that the row names"),
    ],
)
def test_a_wrong_row_is_noticed(clauses, changed, message):
    """By its source and section."""
    [row] = [Row(**vars(row) | changed) for row in ROWS if row.section == "Profiling"]
    assert any(message in fault and row.section in fault for fault in faults(row, clauses))


@pytest.mark.parametrize(
    ("section", "told", "figure"),
    [
        ("Pitfall: FSDP needs 100+ GB/s", "{} tokens", rooflines.tokens_per_chip(find_chip("a100").flops, 1e11)),
        ("Pitfall: too few microbatches", "are {} %", 100 * pipelining.efficiency(4, 16)),
        ("3 Pipeline parallelism", "{} microbatches have 70 %", pipelining.microbatches_for(4, 0.7)),
        ("3 Pipeline parallelism", "{} have 90 %", pipelining.microbatches_for(4, 0.9)),
    ],
)
def test_figures_of_the_last_column_are_those_of_the_laws(section, told, figure):
    """What a row says against its source is reckoned by the formulas of `plan`: FSDP, its tokens, its bandwidth."""
    [row] = [row for row in ROWS if row.section == section]
    assert told.format(f"{figure:,.0f}") in row.but
