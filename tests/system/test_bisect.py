"""`meshproof bisect`, on stacks of toys: releases in which a change was planted, and some that do not run."""

import re

import pytest
from packaging.version import Version

from meshproof.environments import StackError
from meshproof.upgrade import bisecting
from meshproof.upgrade.bisecting import BisectError, bisect, describe, read_pins
from tests.comparing import ALL_REDUCE, MEMORY, report

RELEASES = {"jax": ["0.9.0", "0.9.1", "0.10.0", "0.10.1", "0.11.0", "0.12.0"], "flax": ["0.12.0", "0.12.1", "0.12.2"]}


@pytest.fixture(autouse=True)
def released(monkeypatch):
    """What lies between two releases."""

    def releases(package, low, high, prereleases=False):
        return [each for each in RELEASES[package] if Version(low) < Version(each) < Version(high)]

    monkeypatch.setattr(bisecting, "releases", releases)


def stack(jax="0.9.0", flax="0.12.0"):
    """Pins."""
    return {"jax": jax, "flax": flax}


def planted(package, since, refused=()):
    """Runs the suites: COM-4 fails since a release of a package; the stacks that are refused cannot be made."""
    runs = []

    def run(pins):
        runs.append(dict(pins))
        if (pins["jax"], pins["flax"]) in refused:
            raise StackError(f"{pins['jax']} cannot be resolved\nwith:\n  no wheel\n")
        made = report(jax=pins["jax"], flax=pins["flax"])
        if Version(pins[package]) >= Version(since):
            made["clauses"][0]["tests"][0] |= {"status": "failed", "message": f"seen on {pins[package]}"}
        return made

    run.runs = runs
    return run


@pytest.mark.parametrize("since", RELEASES["jax"][1:])
def test_each_release_is_found(since):
    """Whichever brought it, with as few runs as halving takes."""
    run = planted("jax", since)
    origin = bisect(stack(), stack(jax="0.12.0"), run)
    [step] = origin.steps
    before = RELEASES["jax"][RELEASES["jax"].index(since) - 1]
    assert origin.certain and (step.package, step.before, step.suspects) == ("jax", before, (since,))
    assert (origin.fact.kind, origin.fact.place) == ("clause", "COM-4") and len({pins["jax"] for pins in run.runs}) <= 5


def test_a_change_that_went_back_is_found_from_above():
    """The good stack may be the newer one."""
    origin = bisect(stack(jax="0.12.0"), stack(), lambda pins: planted("jax", "0.12.0")(opposite(pins)))
    assert origin.certain and (origin.steps[0].before, origin.steps[0].suspects) == ("0.10.1", ("0.10.0",))


def opposite(pins):
    """A stack that fails where the release of these pins is older than 0.10.1."""
    return stack("0.12.0" if Version(pins["jax"]) < Version("0.10.1") else "0.9.0")


@pytest.mark.parametrize(("package", "since"), [("flax", "0.12.1"), ("flax", "0.12.2"), ("jax", "0.11.0")])
def test_of_two_packages_the_one_to_blame_is_found(package, since):
    """One is moved while the other stays."""
    origin = bisect(stack(), stack("0.12.0", "0.12.2"), planted(package, since))
    assert origin.certain and (origin.steps[0].package, origin.steps[0].suspects) == (package, (since,))


def test_what_nobody_named_may_be_to_blame():
    """A newer flax came with the newer jax, and it is flax."""

    def run(pins):
        return planted("flax", "0.12.1")({"flax": "0.12.2" if pins["jax"] == "0.12.0" else "0.12.0", **pins})

    origin = bisect({"jax": "0.9.0"}, {"jax": "0.12.0"}, run)
    assert origin.certain and (origin.steps[0].package, origin.steps[0].suspects) == ("flax", ("0.12.1",))


def test_packages_that_move_only_together_are_ambiguous():
    """Where no crossing can be installed, nobody can tell them apart, and that is said."""
    refused = {("0.9.0", "0.12.2"), ("0.12.0", "0.12.0")}
    origin = bisect(stack(), stack("0.12.0", "0.12.2"), planted("flax", "0.12.1", refused))
    assert not origin.certain and [step.package for step in origin.steps] == ["jax", "flax"]
    verdict, *lines = describe(origin).splitlines()
    assert verdict.startswith("ambiguous: one of jax 0.9.1, ")
    assert [line for line in lines if "not judged" in line] == [
        "  not judged: jax 0.12.0 beside the others of --good: 0.12.0 cannot be resolved … no wheel",
        "  not judged: jax 0.9.0 beside the others of --bad: 0.9.0 cannot be resolved … no wheel",
        "  not judged: flax 0.12.2 beside the others of --good: 0.9.0 cannot be resolved … no wheel",
        "  not judged: flax 0.12.0 beside the others of --bad: 0.12.0 cannot be resolved … no wheel",
    ]


def test_releases_that_do_not_run_are_suspects():
    """A release without a verdict is passed by; where the change lies beside it, both are named."""
    run = planted("jax", "0.11.0", {("0.10.1", "0.12.0")})
    origin = bisect(stack(), stack(jax="0.12.0"), run)
    assert not origin.certain and origin.steps[0].suspects == ("0.10.1", "0.11.0")
    assert "ambiguous: one of jax 0.10.1, jax 0.11.0" in describe(origin)
    assert describe(origin).count("not judged") == 1
    assert "\n  not judged: jax 0.10.1: 0.10.1 cannot be resolved … no wheel\n" in describe(origin)
    origin = bisect(stack(), stack(jax="0.12.0"), planted("jax", "0.12.0", {("0.10.0", "0.12.0")}))
    assert origin.certain and origin.steps[0].suspects == ("0.12.0",) and "not judged" not in describe(origin)


def test_one_clause_can_be_asked_for():
    """Another difference, though as serious, is not followed then."""

    def run(pins):
        made = planted("jax", "0.11.0")(pins)
        if Version(pins["jax"]) >= Version("0.9.1"):
            made["cases"][0]["memory"] = MEMORY | {"state": 2000, "aliased": 2000}
            made["clauses"][1]["tests"][0]["status"] = "failed"
        return made

    bad = stack(jax="0.12.0")
    assert bisect(stack(), bad, run, "NUM-3").steps[0].suspects == ("0.9.1",)
    assert bisect(stack(), bad, run, "COM-4").steps[0].suspects == ("0.11.0",)
    with pytest.raises(BisectError, match="COM-9 says the same on --good and on --bad"):
        bisect(stack(), bad, run, "COM-9")


def turning(earlier, later):
    """Runs the suites: facts of a case, its test of COM-4 or the stack turn since jax 0.9.1, and again since 0.11.0."""

    def run(pins):
        made = report(jax=pins["jax"])
        version = Version(pins["jax"])
        facts = later if version >= Version("0.11.0") else earlier if version >= Version("0.9.1") else {}
        for part in (made["cases"][0], made["clauses"][0]["tests"][0], made["environment"]):
            part |= {name: fact for name, fact in facts.items() if name in part}
        return made

    return run


RENAMED, DOUBLED = (ALL_REDUCE | {"realized_as": "all-reduce-start", "bytes": size} for size in (4096, 8192))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"losses": [2.0, 1.0 + 2e-7]}, {"losses": [2.0, 1.3]}),
        ({"collectives": [RENAMED]}, {"collectives": [DOUBLED]}),
        ({"digest": "cd" * 32}, {"digest": None}),
    ],
)
def test_a_harmless_difference_of_the_same_fact_is_not_to_blame(earlier, later):
    """Other bits, or another name of a collective, since an older release than the one that brought the fault."""
    origin = bisect(stack(), stack(jax="0.12.0"), turning(earlier, later))
    assert origin.certain and (origin.steps[0].before, origin.steps[0].suspects) == ("0.10.1", ("0.11.0",))
    assert origin.fact.change in ("regressed", "gone")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"status": "not-supported"}, {"status": "failed"}),
        ({"status": "not-supported", "margin": None}, {"status": "proved", "margin": 0.9}),
        ({"losses": []}, {"losses": [2.0, 1.3]}),
        ({"collectives": None}, {"collectives": [DOUBLED]}),
        ({"device_count": 4}, {"losses": [2.0, 1.3]}),
        ({"id": "another case"}, {"losses": [2.0, 1.3]}),
    ],
)
def test_a_release_that_does_not_show_the_fact_is_a_suspect(earlier, later):
    """A clause not judged, a program not read, other devices or no such case: the fault may have been there."""
    origin = bisect(stack(), stack(jax="0.12.0"), turning(earlier, later))
    assert not origin.certain and origin.steps[0].suspects == ("0.9.1", "0.10.0", "0.10.1", "0.11.0")
    assert re.search(r"^  not judged: jax 0\.9\.1: .* is not seen$", describe(origin), re.MULTILINE)


def test_a_fact_that_is_gone_is_sought_as_such():
    """Where its whole case went before, that is to blame."""
    origin = bisect(stack(), stack(jax="0.12.0"), turning({"id": "another case"}, {"losses": []}))
    assert origin.certain and origin.steps[0].suspects == ("0.9.1",) and origin.fact.kind == "case"


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (stack(), {"jax": "0.12.0"}, "expected the same packages in both"),
        (stack(), stack(), "there is nothing between them"),
        (stack(), stack(flax="0.12.2"), "all facts are the same"),
    ],
)
def test_nothing_to_bisect_is_one_error(good, bad, words):
    """Other packages, the same releases, no change."""
    with pytest.raises(BisectError, match=words):
        bisect(good, bad, planted("jax", "0.9.1"))


def test_what_cannot_be_told_is_not_the_same():
    """Runs on other devices, in which nothing else differs."""

    def run(pins):
        return report(jax=pins["jax"], device_count=8 if pins["jax"] == "0.9.0" else 4)

    with pytest.raises(BisectError, match="cannot be told what --bad changes: the devices differ: device_count 8 ag"):
        bisect(stack(), stack("0.12.0"), run)


@pytest.mark.parametrize("text", ["jax", "jax>=0.9", "jax==0.9.*", "jax==0.9.0,!=0.9.1"])
def test_only_releases_can_be_bisected(text):
    """A range has no place between two others."""
    with pytest.raises(BisectError, match="names no release; expected the like of jax"):
        read_pins([text])


def test_the_verdict_can_be_acted_on():
    """The release, the fact before and after, the message, and a line that shows it again."""
    told = describe(bisect(stack(), stack(jax="0.12.0"), planted("jax", "0.11.0")), ["-k", "fsdp and jax"])
    for words in (
        "jax 0.11.0 brought it; jax 0.10.1 does not have it",
        "before: proved",
        "after:  failed",
        "seen on 0.11.0",
        "meshproof upgrade --from jax==0.10.1,flax==0.12.0,optax==0.2.8,numpy==2.5.5 --to jax==0.11.0,",
        "numpy==2.5.5 -k 'fsdp and jax'",
    ):
        assert words in told
