"""The reader of reports: what is no whole report of this schema is refused in words, never half understood."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from meshproof.expectations import ExpectationError
from meshproof.expectations.updating import update
from meshproof.report.document import ReportError, read_report
from tests.expecting import entry, write
from tests.fuzzing import bounded, damaged, fuzz
from tests.unit.test_expectations_update import SEEN

GOOD = json.dumps(SEEN)
ODD = [None, True, -1, 0, 1.5, 1e308, 10**400, float("nan"), float("inf"), "", "x", "\ud800", "\x00", "a\nb", [], {}]
SCRAPS = ["NaN", "Infinity", "-1", "9" * 5000, "1e999", "null", "true", '"', "{", "}", "[", "]", "[" * 5000, "\\ud800"]


def places(value, path=()):
    """The path of every value within a JSON document."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def changed(path, new):
    """The report with one value replaced; or, where ``new`` is `LOST`, without it."""
    report = json.loads(GOOD)
    *parents, last = path
    target = report
    for key in parents:
        target = target[key]
    if new is LOST:
        del target[last]
    else:
        target[last] = new
    return json.dumps(report)


LOST = object()
PLACES = [path for path in places(SEEN) if path]


def survives(folder, content):
    """A report that can be used to update expectations, or a `ReportError` that names the file."""
    path, file = folder / "report.json", write(folder / "own.toml", entry("bad", jax=">=0.7"), entry("gone", "flaky"))
    path.write_bytes(content)
    with bounded():
        try:
            report = read_report(path)
        except ReportError as error:
            assert str(error).startswith(f"{path}: ") and len(str(error)) < 1000
            return None
        try:
            return update(report, file)
        except ExpectationError as error:
            assert str(error).startswith(f"{file}: ")
            return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where reports are written, one over the other."""
    return tmp_path_factory.mktemp("reports")


@fuzz(150)
@given(damaged(GOOD, SCRAPS))
@example("")
@example("NaN")
@example("[" * 100_000)
@example('{"schema": 2')
def test_any_damage_to_a_report_is_refused_or_harmless(folder, text):
    """Whatever happened to the text of a report, it can be used or it is a `ReportError`."""
    survives(folder, text.encode("utf-8", "surrogatepass"))


@fuzz(150)
@given(st.sampled_from(PLACES), st.sampled_from([LOST, *ODD]))
@example(("environment", "jax"), "x")
@example(("clauses", 0, "tests", 0, "id"), "\ud800")
@example(("clauses", 0, "tests", 0, "margin"), float("nan"))
def test_any_value_in_a_report_is_refused_or_harmless(folder, path, value):
    """So it is where one value is lost, of another type, not finite, or larger than any."""
    survives(folder, changed(path, value).encode())


@fuzz(50)
@given(st.binary() | st.integers(0, len(GOOD) - 1).map(lambda end: GOOD[:end].encode()))
def test_what_is_cut_off_is_no_report(folder, content):
    """Bytes that are no text, and every beginning of a report but the whole, are refused."""
    assert survives(folder, content) is None


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("schema",), 1, "a report of schema 1; this meshproof reads schema 2: it has facts that the older had not"),
        (("schema",), 3, "reads schema 2: it is of a newer Meshproof; update this one to read it"),
        (("clauses",), LOST, '"clauses" is a required property'),
        (("clauses", 0, "tests", 0, "status"), "passed", 'at clauses[0].tests[0].status: "passed" is not one of'),
        (("clauses", 0, "tests", 0, "margin"), float("nan"), "this is not JSON, or not all of it: NaN is no number"),
        (("environment",), None, "the report does not know its stack"),
        (("environment", "jax"), "new", "at environment.jax: 'new' is no version"),
        (("clauses", 0, "tests", 0, "id"), "\ud800", "this is not UTF-8 text: surrogates not allowed"),
    ],
)
def test_a_refusal_names_the_place(folder, path, value, words):
    """A wrong value is refused with its place in the document, the value and what was expected."""
    with pytest.raises(ReportError) as refused:
        (folder / "report.json").write_text(changed(path, value))
        read_report(folder / "report.json")
    assert words in str(refused.value)


def test_another_document_is_no_older_report(folder):
    """As a plan, which has a schema too: nobody is sent to run suites again."""
    (folder / "report.json").write_text('{"schema": 1, "strategies": []}')
    with pytest.raises(ReportError, match="this is JSON, but no report: "):
        read_report(folder / "report.json")
