"""Release notes: every line of them has a probe whose answer changed there, or says why not; and explains a change."""

import re
from pathlib import Path

import pytest
from packaging.version import Version

from docs.changelog import section
from meshproof.comparison import compare
from meshproof.comparison.release_notes import Line, Release, explain, read_line, read_notes, without_probe
from meshproof.observing.defaults import every_probe
from tests.comparing import report

pytestmark = pytest.mark.newest_stack

ROOT = Path(__file__).parents[2]
RELEASES = {release.name: release for release in read_notes()}
LINES = [(release, line) for release in read_notes() for line in release.lines]


def stack(jax, flax="0.12.8", **defaults):
    """A report of this stack."""
    return report(jax=jax, flax=flax, defaults={"partitioner": "shardy"} | defaults)


@pytest.mark.parametrize(("release", "line"), LINES, ids=lambda value: getattr(value, "name", None) or value.says[:30])
def test_each_line_is_as_its_probe_says(release, line):
    """The probe's known answer changes at the release from which the line is seen, and nowhere if it is not."""
    if line.probe is None:
        assert line.unprobed
        return
    probe = every_probe()[line.probe]
    assert probe.package == release.package
    if line.since is None:
        assert probe.expected(release.before) == probe.expected(release.version) != []
    else:
        before = RELEASES[f"{release.package} {line.since}"].before
        assert probe.expected(before) != probe.expected(line.since) != []


def test_every_supported_release_is_listed():
    """In order; and so are those of every stack in constraints/."""
    for package in ("jax", "flax"):
        versions = [release.version for release in read_notes() if release.package == package]
        assert versions == sorted(set(versions), key=Version)
        texts = [file.read_text(encoding="utf-8") for file in (ROOT / "constraints").glob("*.txt")]
        assert {re.search(rf"^{package}==(\S+)$", text, re.MULTILINE)[1] for text in texts} <= set(versions)


def test_every_known_change_is_named_or_of_a_release_that_was_not_read():
    """An answer that changes between two listed releases stands in the notes of one, but for what never did. A promise
    is asked from the release on that has what it asks for."""
    for name, probe in every_probe().items():
        if probe.kind == "promise":
            continue
        seen = {line.since for _, line in LINES if line.probe == name}
        for release in read_notes():
            if release.package == probe.package and probe.expected(release.before) not in (
                [],
                probe.expected(release.version),
            ):
                assert release.version in seen or (name, release.version) in SILENT, f"{name} changes in {release.name}"


SILENT = {("jaxpr_constants", "0.8.0"), ("largest_of_nan", "0.10.2"), ("weight_norm_parameters", "0.12.1")}
"""Changes that no notes name: a class of JAX had another name, XLA used another library, NNX had no such layer."""


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"says": "x"}, "either probe (with since or seen) or unprobed"),
        ({"probe": "x64"}, "expected says"),
        ({"says": "x", "unprobed": "y", "since": "0.9.0"}, "release_notes.toml, jax 0.9.0: {'says': 'x'"),
        ({"says": "x", "probe": "x64", "unprobed": "y"}, "jax 0.9.0"),
    ],
)
def test_an_entry_that_says_too_little_or_too_much_is_refused(entry, message):
    """By its file, its release and itself."""
    with pytest.raises(ValueError, match=r"release_notes\.toml") as raised:
        read_line("jax 0.9.0", "0.9.0", entry)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("probe", "old", "new", "words"),
    [
        ("empty_arrays", "0.10.2", "0.11.0", "release notes of jax 0.11.0: jax.numpy.empty and empty_like hold"),
        ("empty_arrays", "0.11.0", "0.10.2", "release notes of jax 0.11.0: "),
        ("arange_with_step", "0.9.2", "0.10.0", "release notes of jax 0.9.2: "),
        ("empty_arrays", "0.9.2", "0.10.2", "no release note names it"),
        ("pmap_shard", "0.8.3", "0.9.0", "no release note names it"),
        (
            "x64",
            "0.11.0",
            "0.12.0",
            "no release note names it, but those of jax 0.11.1, jax 0.11.2, jax 0.12.0 were not",
        ),
    ],
)
def test_a_change_is_explained_by_the_notes_between(probe, old, new, words):
    """And by no others: what an older release changed says nothing of a flip today."""
    assert explain(probe, {"jax": old, "flax": None}, {"jax": new, "flax": None}).startswith(words)


def test_a_comparison_says_which_notes_name_a_changed_default():
    """*changed*, with the release and the line; one that nobody names says that; one asked on one side only is no
    change."""
    old = stack("0.10.2", empty_arrays="broadcast_in_dim", x64=False, dropped=1)
    new = stack("0.11.0", empty_arrays="empty", x64=True, asked=1)
    found = {each.place: each for each in compare(old, new).differences if each.kind == "defaults"}
    assert {name: each.change for name, each in found.items()} == {
        **{"empty_arrays": "changed", "x64": "changed", "asked": "new", "dropped": "gone"},
    }
    told = found["empty_arrays"]
    assert told.old == "broadcast_in_dim"
    assert told.new.startswith("empty; release notes of jax 0.11.0: jax.numpy.empty and empty_like hold")
    assert found["x64"].new == "True; no release note names it"


def test_a_line_without_a_probe_is_said_of_its_release():
    """In the page, beside the reason; and so is a release whose notes were not read."""
    line = Line("products are faster", None, "takes a GPU", None)
    told = "\n".join(section(Release("jax", "0.9.0", "0.8.3", "notes", (line,))))
    assert "**1 of 1 lines has no probe.**" in told and "| not asked: takes a GPU |" in told
    assert "were not read" in "\n".join(section(Release("jax", "0.9.0", "0.8.3", "not read", ())))
    assert {release.name for release, _ in without_probe()} >= {"jax 0.8.0", "flax 0.12.11"}
