"""A loop that continues with other examples, or from what is not whole, is caught by CKP-6; a sound one is not."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.implementations import runs

pytestmark = pytest.mark.newest_stack

CAUGHT = {
    "Restarted": r"stopped after step 4: at step 5 expected the examples .* saw those of step 1; the data begin again",
    "Late": r"stopped after step 4: at step 5 expected the examples .* saw those of step 6; .* was read ahead: save",
    "Twice": r"stopped after step 4: at step 5 expected the examples .* saw those of step 4; .* of an earlier step",
    "Apart": r"killed while step 4 was saved, with half of data.new written: at step 5 .* of step 4; .* write both",
    "PlaceFirst": r"killed while step 4 was saved, before .*: at step 4 .* of step 5; .* two steps: write both into",
    "StepFirst": r"killed while step 4 was saved, .*: at step 5 expected the loss .* of two steps: .*, or something",
    "NotAwaited": r"stopped after step \d: expected a run that goes on .* saw one from step \d; its .* is not there",
    "InPlace": r"killed while step 4 was saved, before opening step_4/data.json: .* saw FileNotFoundError: .*whole",
    "MomentumLost": r"stopped after step \d: at step \d expected the loss [\d.]+, bit for bit, saw .* not in the check",
    "OneFile": r"killed while step 4 was saved, with half of step_0 written: .* saw (BadZipFile|ValueError|EOFError)",
    "Mapped": r"killed while step 4 was saved, with half of step_0 written: at step \d expected the (loss|examples)",
    "SortedAsText": r"resumed at step 6, stopped after step 11: expected .* goes on from step 11, saw .* step 9",
    "CountsAnew": r"resumed at step 6, stopped after step 11: expected a run that goes on from step 11, saw .* step 6",
    "PlaceOnce": r"resumed at step 6, stopped after step 11: at step 12 expected the examples .* saw those of step 6",
    "MadeElsewhere": r"killed while step 4 was saved, before removing step_3: .* saw FileNotFoundError",
    "Relinked": r"killed while step 4 was saved, before linking latest: .* from step 3 or 4, saw one from step 0",
    "OneKept": r"killed while step 4 was saved, .* goes on from step 3 or 4, saw one from step 0",
}
"""Of each fault what is said of it."""

SOUND = "Sound", "Linked", "Logged", "Ends", "EndsWithoutData"

STOPPED_IS_SOUND = (
    "Apart",
    "PlaceFirst",
    "MadeElsewhere",
    "Relinked",
    "InPlace",
    "OneKept",
    "OneFile",
    "Mapped",
    "StepFirst",
)
"""What only a kill shows."""


@pytest.fixture(scope="module")
def told():
    """What CKP-6 says of each run, in a process of their own: the hooks stay."""
    command = [sys.executable, "-m", runs.__name__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_sound_run_passes(told):
    """And every run is judged."""
    assert told.keys() == runs.RUNS.keys() == {*SOUND, "Unheard", *CAUGHT}
    assert all(told[name] == [] for name in SOUND), told


@pytest.mark.parametrize("name", CAUGHT)
def test_a_fault_is_told(told, name):
    """In a sentence that says where the run ended, what was expected, and what to do."""
    found = [problem for problem in told[name] if re.search(CAUGHT[name], problem)]
    assert found, told[name]
    assert len(told[name]) == 1 or name not in STOPPED_IS_SOUND


def judged(name, tmp_path):
    """The entry of CKP-6 in a run of the suites."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pytest", "suites/test_runs_continue.py", "--impl", runs.__name__, "-q"]
    command += ["-p", "no:randomly", "--conformance-report", str(report)]
    variables = os.environ | {runs.CHOSEN: name}
    subprocess.run(command, capture_output=True, env=variables, timeout=300)
    [clause] = json.loads(report.read_text(encoding="utf-8"))["clauses"]
    return clause


@pytest.mark.parametrize("name", ["Late", "Apart"])
def test_ckp_6_catches_it(name, tmp_path):
    """In a run of the suites, by name."""
    clause = judged(name, tmp_path)
    messages = [test["message"] for test in clause["tests"] if test["status"] == "failed"]
    assert clause["id"] == "CKP-6" and all(message.startswith("CKP-6 is violated: ") for message in messages)
    assert re.search(CAUGHT[name], "\n".join(messages)), clause["tests"]


def test_a_save_that_is_not_heard_is_not_passed(tmp_path):
    """Another process writes it: where a kill would tear it nobody knows, and that is said."""
    stopped, killed = judged("Unheard", tmp_path)["tests"]
    assert stopped["status"] == "proved"
    assert killed["status"] == "not-exercised" and "no file operation of the save was heard" in killed["message"]
