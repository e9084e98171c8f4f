"""SPEC.md says what the suites say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meshproof.judging.spec import SpecError, read_clauses, render_spec

ROOT = Path(__file__).parents[2]
SUITE = "test_losses_equal_truth.py"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the suites and of SPEC.md."""
    shutil.copytree(ROOT / "suites", tmp_path / "suites", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "SPEC.md", tmp_path)
    return tmp_path


def spec(directory, *arguments):
    """Run ``meshproof spec`` there."""
    command = "import sys; sys.path.insert(0, sys.argv.pop(1)); from meshproof.cli import app; app()"
    return subprocess.run(
        [sys.executable, "-c", command, str(ROOT), "spec", *arguments], cwd=directory, capture_output=True, text=True
    )


def edit(path, old, new):
    """Plant a change that must not go unseen."""
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path.name} no longer says {old!r}: give this test something else to alter"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_spec_is_up_to_date():
    """SPEC.md is what its command would write."""
    assert (ROOT / "SPEC.md").read_text(encoding="utf-8") == render_spec(ROOT), "run `meshproof spec`"


def test_every_clause_is_stated_with_its_test():
    """Every test of the suites stands in SPEC.md under its clause, with its statement."""
    text = (ROOT / "SPEC.md").read_text(encoding="utf-8")
    for clause in read_clauses(ROOT):
        section = text.partition(f"### {clause.id}\n")[2].partition("\n#")[0]
        assert clause.statement in section
        assert clause.test in section


def test_altered_docstring_is_noticed(checkout):
    """A statement that changes in a suite makes the check fail, naming the command that updates; then it passes."""
    assert spec(checkout, "--check").returncode == 0
    edit(checkout / "suites" / SUITE, "The loss MUST equal truth", "The loss MUST nearly equal truth")
    stale = spec(checkout, "--check")
    assert stale.returncode == 1
    assert "`meshproof spec`" in stale.stderr
    assert spec(checkout).returncode == 0
    assert spec(checkout, "--check").returncode == 0
    assert "MUST nearly equal truth" in (checkout / "SPEC.md").read_text(encoding="utf-8")


def test_missing_spec_is_noticed(checkout):
    """A SPEC.md that is not there is out of date."""
    (checkout / "SPEC.md").unlink()
    assert spec(checkout, "--check").returncode == 1


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('@pytest.mark.clause("NUM-4", applies=in_float32)\n', "", "has no clause"),
        ('clause("NUM-4"', 'clause("MUN-4"', "no group of 'MUN-4'"),
    ],
    ids=["no clause", "unknown group"],
)
def test_misplaced_test_is_refused(checkout, old, new, complaint):
    """A test without clause, or with a clause of no group, is refused by name."""
    edit(checkout / "suites" / SUITE, old, new)
    refused = spec(checkout, "--check")
    assert refused.returncode == 2
    assert f"{SUITE}::test_losses_equal_truth" in refused.stderr
    assert complaint in refused.stderr


def test_undocumented_test_is_refused(checkout):
    """A test without docstring is refused by name."""
    source = 'import pytest\n\n\n@pytest.mark.clause("NUM-4")\ndef test_silent(judge):\n    judge.clear([])\n'
    (checkout / "suites" / "test_silent.py").write_text(source, encoding="utf-8")
    with pytest.raises(SpecError, match=r"test_silent\.py::test_silent has no docstring"):
        render_spec(checkout)


def test_folder_without_suites_is_refused(tmp_path):
    """Outside a checkout nothing is written."""
    refused = spec(tmp_path)
    assert refused.returncode == 2
    assert "no suites/test_*.py in" in refused.stderr and "run this in a checkout" in refused.stderr
    assert not (tmp_path / "SPEC.md").exists()
