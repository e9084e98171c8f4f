"""The page: it says what the reports say, whatever they say, and nothing in a report can become part of the page."""

import json
import re
from copy import deepcopy
from functools import reduce
from html.parser import HTMLParser
from operator import getitem

import hypothesis.strategies as st
import pytest
from hypothesis import given
from jsonschema_rs import validator_for
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.html import render_page
from meshproof.html.losses import draw_losses
from meshproof.html.units import describe_bytes, describe_change
from meshproof.report.document import read_report, write_report
from meshproof.report.schemas import read_schema
from tests.fuzzing import bounded, fuzz
from tests.reports import comparison, new_report, old_report
from tests.unit.test_expectations_update import report as toy_report
from tests.unit.test_report_damage import ODD, places

ATTACK = "<script>alert(1)</script>\"'&"
VALID = validator_for(read_schema("report")).is_valid
NEW, OLD = new_report(), old_report()
PLACES = [path for path in places(NEW) if path]
READABLE = [odd for odd in ODD if odd == odd and odd not in (float("inf"), "\ud800")]
"""What `read_report` lets through somewhere."""


class Reader(HTMLParser):
    """Reads a page: its tags, the names of their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), []
        self.feed(page)

    @property
    def text(self):
        """The words with single spaces between them."""
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        """Note a tag."""
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data):
        """Note some text, that of the style sheet too."""
        self.words.append(data)


def with_value(path, value):
    """The new report with one value replaced."""
    changed = deepcopy(NEW)
    reduce(getitem, path[:-1], changed)[path[-1]] = value
    return changed


def hostile(value, fixed):
    """The document with an attack in every string that the schema leaves open, keys too."""
    if isinstance(value, dict):
        return {hostile(key, fixed): hostile(entry, fixed) for key, entry in value.items()}
    if isinstance(value, list):
        return [hostile(entry, fixed) for entry in value]
    if isinstance(value, str) and value not in fixed and not re.fullmatch("[A-Z]{3}-[0-9]+", value):
        return ATTACK + value
    return value


def fixed_words(part):
    """Names of properties and values of enumerations, anywhere in a schema."""
    if isinstance(part, dict):
        words = {*part.get("properties", ()), *part.get("enum", ())}
        return words.union(*map(fixed_words, part.values()))
    return set().union(*map(fixed_words, part)) if isinstance(part, list) else set()


@pytest.fixture
def attack():
    """Both reports and their comparison, hostile."""
    told = comparison(OLD, NEW)
    fixed = (
        fixed_words(read_schema("report")) | set(told) | set(told["counts"]) | set(told["differences"][0]) | {"same"}
    )
    hostiles = [hostile(document, fixed) for document in (NEW, OLD, told)]
    assert all(map(VALID, hostiles[:2]))
    return hostiles


def test_sample_is_a_report(tmp_path):
    """What the page is tested with passes the schema."""
    for report in (NEW, OLD):
        write_report(report, tmp_path / "report.json")
        assert read_report(tmp_path / "report.json") == report


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_in_a_report_becomes_part_of_the_page(attack, count):
    """Every string is an attack, and the page has the tags and attributes that it has without."""
    known = Reader(render_page(NEW, OLD, comparison(OLD, NEW)))
    page = render_page(*attack[:count])
    assert "<script" not in page and "alert(1)" in page
    read = Reader(page)
    assert read.tags <= known.tags and read.attributes <= known.attributes
    assert ATTACK in read.text


@pytest.mark.parametrize(
    ("change", "word", "sentence"),
    [
        ({}, "proved", "1 clause proved, none failed"),
        ({"status": "failed"}, "failed", "No clauses proved, 1 failed"),
        ({"status": "not-exercised"}, "incomplete", "No clauses proved, none failed, 1 not exercised"),
        ({"status": "expected-failure"}, "incomplete", "No clauses proved, none failed, 1 expected to fail"),
        ({"finished": False}, "incomplete", "1 clause proved, none failed; the run did not finish"),
    ],
)
def test_one_report_has_a_sentence(change, word, sentence):
    """Proved is green only where nothing was left unjudged."""
    report = toy_report(good="proved")
    report["clauses"][0]["status"] = change.get("status", "proved")
    report["run"]["finished"] = change.get("finished", True)
    page = render_page(report)
    assert f"</span> {sentence}</h1>" in page
    assert f"Verdict: <strong>{word}</strong>" in page
    assert f'class="verdict { {"proved": "good", "failed": "bad", "incomplete": "unsure"}[word] }"' in page


def test_page_of_one_report_speaks_of_one():
    """Nothing of old and new; the failed test with its message; how to run it again."""
    text = Reader(render_page(NEW)).text
    assert "Differences" not in text and " old " not in text and "before:" not in text
    assert "✗ failed COM-6 test_axes" in text
    assert "all-gather over data: expected 538,624 bytes, saw 0" in text
    assert "python -m pytest suites -k 'mlp and not bf16'" in text
    assert "lift is deprecated" in text and "GSPMDSharding: no regular partition" in text


def test_comparison_is_told():
    """Its sentence, counts and reasons, and the same difference of three cases in one line."""
    page = render_page(NEW, OLD, comparison(OLD, NEW))
    text = Reader(page).text
    assert "COM-6 held with jax 0.10.2 and fails with 0.12.0.1 in 3 cases Verdict: regressed" in text
    assert "3 ✗ regressed 3 ≠ changed 0 ✓ improved 1 + new 0 − gone 5,120 = same" in text
    assert "Why it cannot be told the runs differ in --devices" in text
    assert "✗ regressed clause COM-6 proved → failed 3 cases" in text
    assert "≠ changed memory temporary values differ by case 2 cases" in text
    assert "jax 0.10.2 0.12.0.1 ≠ changed" in text and "numpy 2.5.5 2.5.5 ≠" not in text
    assert "old ✓1 , new ✗1" in text, "the matrix has old beside new, with signs"


def test_lost_proof_is_not_green():
    """A cell where fewer are proved than were has the colour of a change, though nothing failed."""
    good, skipped = toy_report(good="proved"), toy_report(good="not-supported")
    assert '<td class="changed differs">' in render_page(skipped, good)
    assert '<td class="proved differs">' in render_page(good, skipped)


def test_two_reports_need_no_comparison():
    """Old stands beside new, and the sentence is the new report's."""
    text = Reader(render_page(NEW, OLD)).text
    assert "2 clauses proved, 1 failed" in text and "before: proved" in text and "Differences Most" not in text


@pytest.mark.parametrize("part", ["clauses", "cases"])
def test_empty_report(part):
    """No case, no clause: the page says so, and it is not good."""
    empty = NEW | {"cases": [], part: []}
    for reports in ((empty,), (empty, NEW), (NEW, empty)):
        assert "<h2" in render_page(*reports)
    page = render_page(empty)
    assert "The report has no case." in page and 'class="verdict good"' not in page


def test_null_wherever_it_may_be():
    """Every kind of place that can be null is, one by one and all at once."""
    bare, kinds = deepcopy(NEW), {}
    for path in sorted(PLACES, key=len, reverse=True):
        target = reduce(getitem, path[:-1], bare)
        before, target[path[-1]] = target[path[-1]], None
        if VALID(bare):
            kinds[tuple(key for key in path if isinstance(key, str))] = path
        else:
            target[path[-1]] = before
    assert len(kinds) > 40
    for reports in ((bare,), (bare, NEW), (NEW, bare)):
        assert "unknown" in render_page(*reports)
    for path in kinds.values():
        render_page(with_value(path, None))


@fuzz(60)
@given(st.data())
def test_odd_values_are_shown(data):
    """Whatever the schema lets through makes a page: huge numbers, empty texts, meshes of no device that exists."""
    path = data.draw(st.sampled_from(PLACES))
    odd = with_value(path, data.draw(st.sampled_from(READABLE)))
    with bounded():
        if VALID(odd):
            render_page(odd, NEW)
            render_page(NEW, odd)


def test_parts_are_on_the_devices_that_hold_them():
    """Of an array whose rows lie over pod, then data: part 2·pod + data, at those coordinates."""
    page = render_page(NEW)
    for pod, data in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert f"<title>pod={pod}, stage=1, data={data}, model=3: part {2 * pod + data}</title>" in page


def test_curve_is_broken_where_a_loss_is_no_number():
    """Null interrupts the line, and no step is drawn there; steps count from one, as in every message."""
    chart = draw_losses((None, NEW["cases"][0] | {"losses": [3.0, None, 1.0, 2.0]}))
    curve = next(curve for curve in chart.curves if curve.name == "new")
    assert re.fullmatch(r"M[\d. ]+M[\d. ]+L[\d. ]+", curve.path) and len(curve.dots) == 3
    assert [title for *_, title in curve.dots] == ["step 1: 3", "step 3: 1", "step 4: 2"]
    assert [label for _, label in chart.across] == ["1", "2", "3", "4"]
    assert chart.deviations == (("new", "at most 1.1 from truth, at step 3"),)


def test_amounts_are_for_people():
    """Binary units of three digits, changes in percent."""
    shown = [describe_bytes(amount) for amount in (None, 0, 1023, 1024, 1867856, 10**400)]
    assert shown == ["—", "0 B", "1023 B", "1 KiB", "1.78 MiB", "over EiB"]
    assert [describe_change(100, new) for new in (125, 25, 100, None)] == ["+25 %", "−75 %", "", ""]


def test_command_writes_the_page(tmp_path):
    """Beside the report, or where it is told; what is no report, or would be overwritten, is refused in words."""
    report = tmp_path / "run.json"
    write_report(NEW, report)
    for arguments, written in (([], "run.html"), (["--output", str(tmp_path / "other.html")], "other.html")):
        assert CliRunner().invoke(app, ["html", str(report), *arguments]).exit_code == 0
        assert (tmp_path / written).read_text(encoding="utf-8") == render_page(NEW)
    (tmp_path / "bad.json").write_text(json.dumps({"schema": 1, "cases": []}), encoding="utf-8")
    for arguments, why in (
        (["bad.json"], "schema 1"),
        (["none.json"], "cannot be read"),
        (["run.json", "--output", str(report)], "overwritten"),
        (["run.json", "--output", str(tmp_path)], f"--output {tmp_path}: this is a folder; name a file in it"),
        (["none.json", "--output", str(report / "x.html")], "(Not a directory); name a folder that exists"),
    ):
        refused = CliRunner().invoke(app, ["html", str(tmp_path / arguments[0]), *arguments[1:]])
        assert refused.exit_code == 2 and why in refused.output
