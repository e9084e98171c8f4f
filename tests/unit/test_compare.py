"""What became of each fact of two reports, and what a user of `meshproof compare` sees of it."""

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.comparison import CHANGES, compare
from meshproof.comparison.output import markdown
from meshproof.report.document import write_report
from tests.comparing import ALL_REDUCE, CASES, LEAF, MEMORY, changed, judged, judgement, report, told

FSDP = CASES[0]


def test_the_same_report_is_the_same():
    """Every fact is compared, and none differs."""
    comparison = compare(report(), report())
    assert comparison.outcome == "same" and not comparison.differences and comparison.exit_code() == 0
    assert comparison.counts["same"] > 30


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"losses": [2.0, 1.0 + 1e-6]}, [("changed", "losses", "loss of step 2")]),
        ({"losses": [2.0, 1.0 + 3e-6]}, [("regressed", "losses", "loss of step 2")]),
        ({"losses": [None, 1.0]}, [("regressed", "losses", "loss of step 1")]),
        ({"losses": []}, [("gone", "losses", "losses")]),
        ({"losses": [2.0]}, [("gone", "losses", "steps")]),
        ({"losses": [2.0, 1.0001], "errors": {}}, [("changed", "losses", "loss of step 2")]),
        ({"losses": [2.0, 1.001], "errors": {}}, [("regressed", "losses", "loss of step 2")]),
        ({"digest": "cd" * 32}, [("changed", "numbers", "bits after the last step")]),
        ({"digest": None}, [("gone", "numbers", "bits after the last step")]),
        ({"shardings": {"w": LEAF | {"spec": "P('data', None)"}}}, []),
        ({"shardings": {"w": LEAF | {"axes": [[]], "shard_shape": [16]}}}, [("regressed", "layout", "w")]),
        ({"shardings": {"w": LEAF | {"axes": None}}}, [("changed", "layout", "w")]),
        ({"shardings": {"w": LEAF | {"shard_shape": [1]}}}, [("improved", "layout", "w")]),
        ({"shardings": {}}, [("gone", "layout", "w")]),
        ({"shardings": {"w": LEAF, "v": LEAF}}, [("new", "layout", "v")]),
        ({"collectives": [ALL_REDUCE | {"executions": 1}]}, [("changed", "collectives", "step: all-reduce over data")]),
        ({"collectives": [ALL_REDUCE | {"phase": "other"}]}, []),
        ({"collectives": [ALL_REDUCE | {"bytes": 5000}]}, [("regressed", "collectives", "step: all-reduce over data")]),
        ({"collectives": [ALL_REDUCE | {"bytes": 4000}]}, [("improved", "collectives", "step: all-reduce over data")]),
        ({"collectives": [ALL_REDUCE | {"bytes": None}]}, [("changed", "collectives", "step: all-reduce over data")]),
        ({"forward_collectives": [ALL_REDUCE]}, [("regressed", "collectives", "forward: all-reduce over data")]),
        ({"collectives": None}, [("gone", "collectives", "step")]),
        ({"memory": MEMORY | {"state": 1001, "aliased": 1001}}, [("regressed", "memory", "state")]),
        ({"memory": MEMORY | {"state": 999, "aliased": 999}}, [("improved", "memory", "state")]),
        ({"memory": MEMORY | {"aliased": 0}}, [("regressed", "memory", "not donated")]),
        ({"memory": MEMORY | {"temporary": 5100}}, []),
        ({"memory": MEMORY | {"temporary": 6000}}, [("changed", "memory", "temporary")]),
        (
            {"memory": {"state": 1000}},
            [("gone", "memory", name) for name in ("arguments", "not donated", "outputs", "temporary")],
        ),
        ({"flops": 1.005e6}, []),
        ({"flops": 1.1e6}, [("changed", "flops", "step")]),
        ({"flops": None}, [("gone", "flops", "step")]),
        ({"compile_seconds": 15.0}, []),
        ({"compile_seconds": 40.0}, [("changed", "compile", "train steps")]),
    ],
)
def test_each_fact_of_a_case_is_classified(facts, expected):
    """One fact is planted, and it alone is told, as what it is; a spelling, a phase and noise are not."""
    assert told(report(), changed(**facts)) == expected


@pytest.mark.parametrize("mesh", [{"data": 8}, {"data": 3}, {"model": 8}, None])
@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("all-reduce", "reduce-scatter", "changed reduce-scatter, improved all-reduce"),
        ("all-reduce", "reduce-scatter all-gather", "changed all-gather, changed all-reduce, changed reduce-scatter"),
        ("reduce-scatter all-gather", "all-reduce", "changed all-gather, changed all-reduce, changed reduce-scatter"),
        ("reduce-scatter all-gather", "all-reduce all-gather", "regressed all-reduce, changed reduce-scatter"),
        ("all-gather", "all-to-all", "changed all-gather, changed all-to-all"),
        ("all-reduce", "collective-permute", "changed collective-permute, improved all-reduce"),
    ],
)
def test_an_all_reduce_is_twice_a_reduce_scatter(was, now, expected, mesh):
    """Of equal S, on a ring of any size, known or not: a lost reduce-scatter has regressed, a split all-reduce not."""
    old, new = (
        changed(mesh=mesh, collectives=[ALL_REDUCE | {"operation": each} for each in operations.split()])
        for operations in (was, now)
    )
    places = [(change, place) for change, _, place in told(old, new)]
    assert places == [(each.split()[0], f"step: {each.split()[1]} over data") for each in expected.split(", ")]


def test_a_larger_ring_sends_more():
    """n is that of a collective's own axes, and the difference says what was weighed."""
    old, new = (
        changed(mesh={"data": 2, "model": 4}, collectives=[ALL_REDUCE | {"axes": axes, "bytes": size}])
        for axes, size in ((["data"], 4096), (["data", "model"], 4000))
    )
    [first, _] = compare(old, new).differences
    assert (first.change, first.place) == ("regressed", "step: all-reduce over data×model")
    assert first.detail == "bytes that each device sends in the whole step, on rings: 4,096 → 7,000"


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("proved", "failed", "regressed"),
        ("proved", "expected-failure", "regressed"),
        ("not-supported", "failed", "regressed"),
        ("failed", "expected-failure", "changed"),
        ("failed", "proved", "improved"),
        ("not-supported", "proved", "improved"),
        ("proved", "not-supported", "gone"),
        ("proved", "not-exercised", "gone"),
        ("failed", "not-supported", "gone"),
    ],
)
def test_each_verdict_of_a_clause_is_classified(was, now, expected):
    """A clause that fails is a regression; one that is no longer judged is never a pass."""
    comparison = compare(judged(was, None), judged(now, None))
    assert [(each.change, each.kind, each.case) for each in comparison.differences] == [(expected, "clause", FSDP)]
    assert comparison.exit_code() == {"regressed": 1, "gone": 2}.get(expected, 0)


def test_compile_seconds_of_kept_programs_are_not_compared():
    """A program that was found took no time to compile: its seconds say nothing of the stack."""
    warm = changed(compile_seconds=40.0)
    warm["run"]["warm"] = True
    assert told(report(), warm) == []


def test_margins_that_erode_are_told():
    """Long before a clause fails; what moved by a hair is not."""
    assert told(report(), judged(margin=0.25)) == []
    assert told(report(), judged(margin=0.9)) == [("changed", "margin", "COM-4")]
    assert told(judged(margin=0.9), report()) == [("improved", "margin", "COM-4")]


def test_what_the_stack_says_and_does_by_default_is_told():
    """A default that flipped, and a warning that is new, with its line of code; numbers in it are no difference."""
    flipped = report(defaults={"partitioner": "gspmd"})
    flipped["cases"][0]["warnings"][0]["message"] = "old is old since 3.2"
    flipped["cases"][1]["warnings"].append({"category": "FutureWarning", "message": "jax.x goes", "at": "fsdp.py:7"})
    assert told(report(), flipped) == [
        ("changed", "defaults", "partitioner"),
        ("new", "warnings", "FutureWarning: jax.x goes"),
    ]
    [warned] = [each for each in compare(report(), flipped).differences if each.kind == "warnings"]
    assert "fsdp.py:7" in warned.detail and CASES[1] in warned.detail


UNFINISHED = {"finished": False, "warm": False, "arguments": []}


def lacking_a_case():
    """A report of one case only."""
    made = report()
    del made["cases"][0]
    for clause in made["clauses"]:
        del clause["tests"][0]
    return made


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (report(device_count=4), "the devices differ: device_count 8 against 4"),
        (lacking_a_case(), "1 fact of kind case in the old report only"),
        (report() | {"run": UNFINISHED}, "the new run did not finish"),
        (report() | {"cases": [], "clauses": []}, "the new run has no case and no operation"),
        (report() | {"clauses": []}, "4 facts of kind clause in the old report only"),
    ],
)
def test_what_is_absent_is_never_green(new, words):
    """Other devices, a case that is missing, a run that broke off: exit code 2."""
    comparison = compare(report(), new)
    assert comparison.outcome == "cannot tell" and comparison.exit_code() == 2
    assert words in comparison.cannot_tell and comparison.sentence.startswith("Cannot tell what changes")


def test_a_case_that_fails_and_is_new_has_regressed():
    """Nothing to compare with is no excuse."""
    new = report()
    new["clauses"][0]["tests"].append(judgement("COM-4", "zero1-jax-toy@data=8", "failed"))
    assert ("regressed", "clause", "COM-4") in told(report(), new)


def test_the_worst_comes_first_and_equals_are_one_line(tmp_path):
    """A failed clause stands above what explains it; what two cases share is one group."""
    new = judged("failed", 2.0)
    for case in new["cases"]:
        case |= {"digest": "cd" * 32, "memory": MEMORY | {"state": 2000, "aliased": 2000}}
    comparison = compare(report(), new)
    assert [(group[0].change, group[0].kind, len(group)) for group in comparison.groups()] == [
        ("regressed", "clause", 1),
        ("regressed", "memory", 2),
        ("changed", "numbers", 2),
    ]
    assert comparison.sentence.startswith("Regressed between two runs on jax 0.12.0.1, flax 0.12.12: first")
    moved = compare(report(jax="0.11.2"), new).sentence
    assert moved.startswith("Regressed from jax 0.11.2 to jax 0.12.0.1: first")
    assert f"first COM-4 of {FSDP}: proved → failed (3 regressed, 2 changed" in comparison.sentence


def test_the_verdict_names_what_moved():
    """Of the packages beside the stack those that both have; a linter that one has besides is no other stack."""
    old, moved = report(packages={"chex": "0.1.91", "ruff": "0.15"}), report(packages={"chex": "0.1.92"})
    assert "the same from chex 0.1.91 to chex 0.1.92" in compare(old, moved).sentence
    same = report(packages={"chex": "0.1.91"})
    assert "the same between two runs on jax 0.12.0.1, flax 0.12.12:" in compare(old, same).sentence
    assert "to orbax 0.12.8" in compare(report(), report(orbax="0.12.8")).sentence
    assert "from orbax absent" in compare(report(), report(orbax="0.12.8")).sentence


@pytest.fixture
def files(tmp_path):
    """Two reports on disk: the new one has a failed clause, and text that no markup may swallow."""
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    new = judged("failed", 2.0)
    new["clauses"][0]["tests"][0]["message"] = "<b>seen</b> | @everyone \x1b[31m 5 bytes"
    new["cases"][0]["shardings"] = {"<i>w</i>|`x`": LEAF}
    for path, made in zip(paths, (report(), new), strict=True):
        write_report(made, path)
    return paths


def run(*arguments):
    """The command as a user runs it."""
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_compare_writes_what_it_found(files, tmp_path):
    """A table, Markdown, JUnit and JSON tell the same; text of a report is text everywhere."""
    outputs = [tmp_path / name for name in ("out.json", "out.md", "out.xml")]
    done = run(*files, "--json", outputs[0], "--markdown", outputs[1], "--junit", outputs[2])
    assert done.exit_code == 1, done.output
    assert "✗" in done.output and "COM-4" in done.output and "Regressed between two runs on jax" in done.output
    found = json.loads(outputs[0].read_text())
    assert found["verdict"] == "regressed" and found["differences"][0]["place"] == "COM-4"
    text = outputs[1].read_text()
    assert "<details open><summary>✗ regressed: 1" in text and "<i>" not in text and "&#124;" in text
    suite = ElementTree.parse(outputs[2]).getroot().find("testsuite")  # noqa: S314 - our own
    assert suite.get("failures") == "1" and "5 bytes" in suite.find("testcase/failure").text


def test_fail_on_chooses_what_fails(files):
    """A changed fact fails where it is asked to, and a regression passes where it is not."""
    assert run(files[0], files[0]).exit_code == 0
    assert run(*files, "--fail-on", "improved").exit_code == 2  # a leaf of it is gone
    assert run(*files, "--fail-on", "gone,changed").exit_code == 1
    refused = run(*files, "--fail-on", "worse")
    assert refused.exit_code == 2 and "'worse' is no class; expected some of regressed, gone" in refused.output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '{"schema": 1, "clauses": []}',
            ["a report of schema 1; this meshproof reads schema 2", "run the suites of that stack again"],
        ),
        ('{"schema": 2, "envi', ["this is not JSON, or not all of it"]),
        (json.dumps(report() | {"implementation": "mine"}), ["--impl reference_impl", "--impl mine"]),
        (json.dumps(report() | {"environment": None}), ["does not know its stack"]),
    ],
)
def test_what_cannot_be_compared_is_refused(files, tmp_path, content, words):
    """One line that says what is wrong, and exit code 2."""
    (tmp_path / "bad.json").write_text(content)
    done = run(files[0], tmp_path / "bad.json")
    assert done.exit_code == 2 and done.output.count("\n") == 1
    for word in words:
        assert word in done.output


def test_every_class_is_shown():
    """Markdown has a block for each class that there is."""
    new = changed(digest="cd" * 32, shardings={"v": LEAF}, flops=None)
    new["clauses"][0]["tests"][0]["status"] = "failed"
    text = markdown(compare(judged("proved", clause=1) | {}, new))
    for change in CHANGES[:4]:
        assert f" {change}: " in text, change


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--json", "x", "--markdown", "x"), "--markdown {x}: --json writes this file"),
        (("--markdown", "x", "--junit", "x"), "--junit {x}: --markdown writes this file"),
        (("--json", "old.json"), "--json {old.json}: the command reads this file"),
        (("--json", "gone/x"), "--json {gone/x}: no file can be written in {gone} (No such file or directory)"),
    ],
)
def test_a_file_that_cannot_be_kept_is_refused(files, tmp_path, options, why):
    """Before anything is compared."""
    done = run(*files, *(option if option.startswith("--") else tmp_path / option for option in options))
    assert done.exit_code == 2 and not (tmp_path / "x").exists()
    assert done.output.startswith("meshproof: " + why.replace("{", f"{tmp_path}/").replace("}", ""))
