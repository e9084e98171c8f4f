"""Expectations rewritten from a report: what still fails keeps its words, and nothing is expected unexplained."""

import json
import tomllib

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.expectations import ExpectationError, parse
from meshproof.expectations.updating import update
from tests.expecting import LINK, entry, write

STACK = {
    **{"python": "3.12.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "flax": "0.12.12", "numpy": "2.5.5"},
    **{"optax": None, "orbax": None, "platform": "cpu", "device_kind": "cpu", "device_count": 8},
    **{"xla_flags": "", "time": "2026-11-21T21:19:00+00:00", "defaults": {}, "packages": {}},
}
OBSERVED = {
    **{name: [] for name in ("losses", "expected_losses", "warnings")},
    **dict.fromkeys(("digest", "collectives", "forward_collectives")),
    **{"errors": {}, "shardings": {}, "memory": None, "flops": None, "compile_seconds": None, "problem": None},
}


def report(unmatched=(), stack=STACK, target="cpu", **statuses):
    """A report of toys by their statuses, on eight devices each."""
    cases = [
        {"id": f"{name}-jax-toy@data=8", "strategy": name, "framework": "jax", "model": "toy", "mesh": {"data": 8}}
        for name in statuses
    ]
    tests = [
        {"id": f"suites/test_toy.py::test_toy[{case['id']}]", "case": case["id"], "status": status, "message": ""}
        for case, status in zip(cases, statuses.values(), strict=True)
    ]
    clause = {"id": "NUM-1", "statement": "A toy MUST be good.", "status": "failed", "worst_margin": None}
    return {
        **{"schema": 2, "environment": stack, "implementation": "reference_impl"},
        "run": {"finished": True, "warm": False, "arguments": ["suites"]},
        "clauses": [clause | {"tests": [test | {"margin": None, "ratio": None} for test in tests]}],
        "cases": [case | OBSERVED | {"target": target} for case in cases],
        "unmatched_expectations": [known | {"file": "own.toml", "number": 1} for known in unmatched],
    }


SEEN = report([entry("gone", "flaky")], broken="failed", bad="expected-failure", good="proved", better="proved")
OWN = """\
# Head.

# About the good.
[[expectation]]
test = "suites/test_toy.py::*[good-*]" # a pattern
outcome = "xfail"
reason = "was bad"
url = "https://example.com/1"

# About two.
[[expectation]]
test = "suites/test_toy.py::*[b*]"
outcome = "xfail" # kept
reason = "one is still bad"
url = "https://example.com/2"
[expectation.when]
jax = ">0"

# About another stack.
[[expectation]]
test = "suites/test_toy.py::*[good-*]"
when = { jax = "<0.1" }
outcome = "xfail"
reason = "old"
url = "https://example.com/3"

# About nothing.
[[expectation]]
test = "suites/test_toy.py::*[gone-*]"
outcome = "flaky"
reason = "gone"
url = "https://example.com/4"
"""


def rewrite(seen, **options):
    """``meshproof expectations update`` as a user runs it."""
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return CliRunner().invoke(app, ["expectations", "update", str(seen), *arguments], catch_exceptions=False)


def test_update_keeps_what_still_fails(tmp_path):
    """Failing entries stay with their words, passing ones go, mixed ones are narrowed, others stay as they are."""
    seen, file = tmp_path / "report.json", tmp_path / "own.toml"
    seen.write_text(json.dumps(SEEN))
    file.write_text(OWN)
    updated = rewrite(seen, file=file)
    assert updated.exit_code == 0, updated.output
    text = file.read_text()
    assert "About the good" not in text and "About nothing" not in text
    assert (
        text.startswith("# Head.\n\n# About two.\n[[expectation]]\n") and "# kept" in text and "# About another" in text
    )
    assert [(known.test.partition("[")[2], known.reason) for known in parse(text, "own.toml")] == [
        ("bad-jax-toy@data=8]", "one is still bad"),
        ("broken-jax-toy@data=8]", "one is still bad"),
        ("good-*]", "old"),
    ]
    again = rewrite(seen, file=file)
    assert file.read_text() == text and "nothing to change" in again.output


def test_update_adds_what_nobody_may_forget_to_explain(tmp_path):
    """A new failure gets an entry for its stack, and the file is refused until it has a reason and a link."""
    file = tmp_path / "new.toml"
    assert [change.partition(":")[0] for change in update(SEEN, file)] == ["added suites/test_toy.py"]
    [table] = tomllib.loads(file.read_text())["expectation"]
    assert table["test"].endswith("[broken-jax-toy@data=8]")
    assert table["when"] == {"jax": "==0.12.0.1", "jaxlib": "==0.12.0.1", "flax": "==0.12.12"}
    with pytest.raises(ExpectationError, match="reason is 'TODO"):
        parse(file.read_text(), "new.toml")


def test_a_file_that_is_not_there_is_said_to_be_none(tmp_path):
    """Where nothing failed that would begin it; one that cannot be written is an error."""
    seen, file = tmp_path / "report.json", tmp_path / "nothere.toml"
    seen.write_text(json.dumps(report(good="proved")))
    updated = rewrite(seen, file=file)
    assert updated.exit_code == 0 and not file.exists()
    assert updated.output == f"{file}: there is no such file, and no unexpected failure to begin it with\n"
    refused = rewrite(seen, file=tmp_path)
    assert refused.exit_code == 2 and f"--file {tmp_path}: this is a folder" in refused.output


def test_update_knows_targets_and_platforms(tmp_path):
    """A report from accelerators speaks of entries for them, and what fails anew on them is expected of them only."""
    file = write(tmp_path / "own.toml", entry("good", platform="gpu"), entry("good", platform="cpu"))
    update(report(stack=STACK | {"platform": "gpu"}, target="native", good="proved", bad="failed"), file)
    kept, added = tomllib.loads(file.read_text())["expectation"]
    assert kept["when"] == {"platform": "cpu"} and added["when"]["target"] == "native"


def test_update_refuses_what_it_cannot_read(tmp_path):
    """No report, half of one, another document, another implementation's, or an odd file: an error, and no change."""
    file = tmp_path / "own.toml"
    odd = f"expectation = [{{test = 'x', outcome = 'xfail', reason = 'odd', url = '{LINK}'}}]\n"
    file.write_text(odd)
    whole = json.dumps(SEEN)
    for text, options, words in (
        (None, {"file": file}, "cannot be read"),
        (whole[: len(whole) // 2], {"file": file}, "not JSON, or not all of it"),
        ('{"schema": 2}', {"file": file}, "no report"),
        (json.dumps(SEEN | {"implementation": "other"}), {}, "name a --file of your own"),
        (json.dumps(SEEN | {"environment": None}), {"file": file}, "does not know its stack"),
        (whole, {"file": file}, "expected every entry to begin with a line [[expectation]]"),
    ):
        seen = tmp_path / "report.json"
        seen.unlink(missing_ok=True)
        if text is not None:
            seen.write_text(text)
        refused = rewrite(seen, **options)
        assert refused.exit_code == 2 and words in refused.output and file.read_text() == odd
