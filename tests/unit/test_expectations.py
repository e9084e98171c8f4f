"""The reader of expectations: what it does not understand is refused, and an entry covers what it says and no more."""

import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
import tomlkit
from hypothesis import given

from meshproof.expectations import ExpectationError, parse
from meshproof.observing.stack import versions
from tests.expecting import LINK, entry

ROOT = Path(__file__).parents[2]
GOOD = tomlkit.dumps({"expectation": [entry("bad", jax=">=0.7,<0.8", devices=8)]})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("outcome", "result", "file.toml: entry 1: 'result' is no key; expected test, when, outcome, reason, url"),
        ('"xfail"', '"skip"', "entry 1: outcome is 'skip'; expected xfail or flaky"),
        ('"xfail"', "[]", "entry 1: outcome is []; expected xfail or flaky"),
        (f'url = "{LINK}"', "", "entry 1: url is missing; expected an http(s) link"),
        ("https://", "ftp://", "entry 1: url is 'ftp://example.com/issues/1'; expected an http(s) link"),
        (LINK, "http://[", "entry 1: url is 'http://['"),
        ('reason = "known upstream"', "", "entry 1: reason is missing"),
        ("known upstream", " ", "entry 1: reason is ' '; expected what fails and why"),
        ("known upstream", "TODO: why", "entry 1: reason is 'TODO: why'; expected what fails and why, in words; TODO"),
        (">=0.7,<0.8", "0.7", "entry 1: when: jax is '0.7'; expected versions, as in '<0.8'"),
        (">=0.7,<0.8", "", "entry 1: when: jax is ''"),
        ("jax =", "jacks =", "entry 1: when: 'jacks' is no key; expected python, jax"),
        ("devices = 8", "devices = 0", "entry 1: when: devices is 0; expected how many"),
        ("devices = 8", "devices = true", "entry 1: when: devices is True"),
        (
            "devices = 8",
            'target = "tpu:v9"',
            "entry 1: when: target is 'tpu:v9'; expected cpu, native",
        ),
        ("devices = 8", 'platform = "linux"', "entry 1: when: platform is 'linux'; expected cpu, gpu, tpu"),
        ("[[expectation]]", "[[expected]]", "file.toml: 'expected' is no key"),
        ("[[expectation]]", "[expectation]", "file.toml: expectation is {"),
        ("[[expectation]]", "expectation = []\n", "file.toml: "),
        ("[[expectation]]", "[[expectation", "file.toml: this is not TOML"),
    ],
)
def test_what_is_not_understood_is_refused(old, new, words):
    """Each fault of a file is an error that names the entry, the key, its value and what was expected."""
    assert old in GOOD and parse(GOOD, "file.toml")
    with pytest.raises(ExpectationError) as refused:
        parse(GOOD.replace(old, new, 1), "file.toml")
    assert words in str(refused.value)


SCRAPS = [
    *GOOD.splitlines(keepends=True),
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "=",
    "\n",
    "#",
    "[" * 2000,
    "9" * 5000,
    "\ud800",
]
VALUES = st.recursive(
    st.text() | st.integers() | st.booleans() | st.dates() | st.sampled_from([">=0.7", "http://[", "xfail", "===x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["jax", "devices", "x"]), inner),
)
TABLES = st.fixed_dictionaries({}, optional=dict.fromkeys(("test", "when", "outcome", "reason", "url"), VALUES))


def survives(text):
    """A text gives expectations that can be used, or an `ExpectationError`."""
    try:
        found = parse(text, "file.toml")
    except ExpectationError:
        return
    for known in found:
        known.speaks_of(versions() | {"flax": None})
        known.covers("suites/test_toy.py::test_toy[bad-jax-toy@data=2]", "cpu", 2)


@given(st.text() | st.lists(st.sampled_from(SCRAPS)).map("".join))
def test_any_text_is_read_or_refused(text):
    """Whatever stands in a file, it gives expectations or an `ExpectationError`."""
    survives(text)


@given(st.lists(TABLES, max_size=3), VALUES)
def test_any_table_is_read_or_refused(tables, when):
    """So does whatever is TOML."""
    try:
        text = tomlkit.dumps({"expectation": [entry("bad") | {"when": when}, *tables]})
    except (ValueError, TypeError):
        return
    survives(text)


def test_patterns_are_literal_but_for_stars():
    """Brackets, commas and signs of an id stand for themselves; only ``*`` and ``?`` do not."""
    [known] = parse(GOOD.replace("*[bad-*]", "test_[a]?[bad-jax-*@data=2,model=4:native]"), "file.toml")
    assert known.matches("suites/test_toy.py::test_[a]x[bad-jax-mlp+bf16@data=2,model=4:native]")
    assert not known.matches("suites/test_toy.py::test_ax[bad-jax-mlp@data=2,model=4:native]")
    assert not known.matches("suites/test_toy.py::test_[a]x[bad-jax-mlp@data=2,model=4]")


def test_conditions_must_all_hold():
    """An entry speaks of a stack where every version is as it says, and of a test where its case is."""
    [known] = parse(GOOD, "file.toml")
    assert known.speaks_of({"jax": "0.7.2"}) and known.speaks_of({"jax": "0.7.3.dev1"})
    assert not known.speaks_of({"jax": "0.8.0"}) and not known.speaks_of({"jax": None})
    test = "suites/test_toy.py::test_toy[bad-jax-toy@data=8]"
    assert known.covers(test, "native", 8) and not known.covers(test, "cpu", 4) and not known.covers(test, None, None)


def test_the_shipped_entries_have_tests():
    """Every entry of this repository matches a test, also those for other stacks and targets than this one's."""
    command = [sys.executable, "-m", "pytest", "suites", "--collect-only", "-q", "--target", "cpu"]
    command += ["--target", "tpu:v5e:2x4"]
    ids = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    name = "suites/expectations.toml"
    for known in parse((ROOT / name).read_text(encoding="utf-8"), name):
        assert any(known.matches(test) for test in ids), known
