"""Every row of docs/sources.md leads to a page that is there and to a clause or test that there is."""

from pathlib import Path

import pytest

from docs.sources import Row, read
from meshproof.judging.spec import read_clauses

ROOT = Path(__file__).parents[2]
ROWS = [row for rows in read().values() for row in rows]


def faults(row, clauses):
    """What is wrong with a row."""
    if not (row.section and row.teaches and row.shown and row.checked):
        yield f"{row.source}, {row.section}: expected a section, what it teaches, where it is shown, and what checks it"
    for path in (*row.shown, *(each for each in row.checked if "/" in each)):
        if not (ROOT / path).is_file():
            yield f"{row.source}, {row.section}: {path} is no file"
    for name in row.checked:
        if "/" not in name and name not in clauses:
            yield f"{row.source}, {row.section}: no suite judges {name}"
        if "/" in name and not Path(name).name.startswith("test_"):
            yield f"{row.source}, {row.section}: {name} is no test"


@pytest.fixture(scope="module")
def clauses():
    """Every clause that a suite judges."""
    return {clause.id for clause in read_clauses(ROOT)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.source}-{row.section[:30]}")
def test_no_row_is_empty(row, clauses):
    """Each has a page and a check, and both exist."""
    assert list(faults(row, clauses)) == []


def test_every_source_is_walked():
    """All five, and no section twice."""
    assert {row.source for row in ROWS} == {"000", "001", "002", "003", "004"}
    named = [(row.source, row.section, row.teaches) for row in ROWS]
    assert len(set(named)) == len(named) > 80


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shown": ()}, "expected a section"),
        ({"checked": ()}, "expected a section"),
        ({"shown": ("gone.py",)}, "gone.py is no file"),
        ({"checked": ("NUM-99",)}, "no suite judges NUM-99"),
        ({"checked": ("meshproof/cli.py",)}, "is no test"),
    ],
)
def test_an_empty_row_is_noticed(clauses, changed, message):
    """By its source and section."""
    row = Row(**vars(ROWS[0]) | changed)
    assert any(message in fault and row.section in fault for fault in faults(row, clauses))
