"""The recipes of docs/ci.md do what they say: their shell runs here, with commands that write down how they are called.

That the services would start it is what the services' own schemas are asked.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from meshproof.cli import app

GITHUB, GITLAB = re.findall(r"```yaml\n(.*?)```", Path("docs/ci.md").read_text(encoding="utf-8"), re.DOTALL)
OLD, NEW = "jax==0.10.2,flax==0.12.8", "jax==0.12.0.1,flax==0.12.12"
LOCKED = "numpy==2.4.6\njax==0.10.2\nflax==0.12.8 ; python_version >= '3.11'\n"
MOVED = "numpy==2.5.5\njax==0.12.0.1\nflax==0.12.12 \\\n    --hash=sha256:00\n"
STAND_INS = {
    "meshproof": 'while [ "$1" != --output ]; do shift; done; mkdir -p "$2"; echo moved > "$2/upgrade.md"; exit $CODE',
    "pip": "exit 0",
    "gh": "exit 0",
    "curl": "exit 0",
    "git": 'if [ "$1" = clone ]; then mkdir "$5"; else exec "$GIT" "$@"; fi',
}


def run_github(checkout, environment):
    """The steps of the workflow that are commands, each in its folder and with what it takes from those before."""
    outputs, code = {}, 0
    for step in yaml.safe_load(GITHUB)["jobs"]["upgrade"]["steps"]:
        condition = step.get("if", "")
        if (
            ("stacks.outputs.to" in condition and "to" not in outputs)
            or ("pull_request" in condition and environment["EVENT"] != "pull_request")
            or (code and "always()" not in condition)
        ):
            continue
        known = {"steps.stacks.outputs." + name: value for name, value in outputs.items()}
        known |= {"github.base_ref": "main", "github.event_name": environment["EVENT"], "github.event.number": "7"}
        given = {name: known.get(value.strip("${ }"), "") for name, value in step.get("env", {}).items()}
        folder = checkout.parent / step.get("working-directory", "")
        told = checkout.parent / "outputs"
        told.write_text("")
        if "run" in step:
            done = shell(step["run"], folder, environment | given | {"GITHUB_OUTPUT": str(told)})
            code = code or done.returncode
        outputs |= dict(line.split("=", 1) for line in told.read_text().splitlines())
    return code


def run_gitlab(checkout, environment):
    """The script of the job, which runs in the checkout."""
    job = yaml.safe_load(GITLAB)["upgrade"]
    event = {"pull_request": "merge_request_event"}.get(environment["EVENT"], environment["EVENT"])
    given = {"CI_PIPELINE_SOURCE": event, "CI_PROJECT_DIR": str(checkout)}
    if event == "merge_request_event":
        given |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "origin/main", "CI_MERGE_REQUEST_IID": "7"}
    return shell("\n".join(job["script"]), checkout, environment | given, "-o", "pipefail").returncode


def shell(script, folder, environment, *options):
    """As both services run one: the first command that fails ends it; GitLab's also within a pipe."""
    command = [shutil.which("bash"), "-e", *options, "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def recipe(tmp_path):
    """Runs a recipe in a checkout whose lock file is moved, and returns its exit code and how commands were called."""
    if not shutil.which("git"):
        pytest.skip("no git here, with which the recipes read what a change moves: install it")
    checkout, tools, calls = tmp_path / "ours", tmp_path / "tools", tmp_path / "calls"
    for folder in (checkout, tools, tmp_path / "meshproof"):
        folder.mkdir()
    for name, does in STAND_INS.items():
        (tools / name).write_text(f'#!/bin/bash\necho {name} "$@" >> {calls}\n{does}\n')
        (tools / name).chmod(0o755)
    (checkout / "requirements.txt").write_text(LOCKED)
    saved = "git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm locked"
    assert shell(f"{saved}; git update-ref refs/remotes/origin/main HEAD", checkout, os.environ).returncode == 0

    def run(recipe, event, locked, code=0):
        (checkout / "requirements.txt").write_text(locked)
        environment = os.environ | {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "GIT": shutil.which("git"),
            "CODE": str(code),
        }
        exit_code = recipe(checkout, environment | {"EVENT": event})
        return exit_code, calls.read_text().splitlines() if calls.exists() else []

    return run


RECIPES = pytest.mark.parametrize("run", [run_github, run_gitlab], ids=["GitHub", "GitLab"])


@RECIPES
@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_moved_lock_file_is_judged_and_the_change_is_told(recipe, run, code):
    """From the old pins to the new, the page goes on the change whatever it says, and the exit code is Meshproof's."""
    exit_code, calls = recipe(run, "pull_request", MOVED, code)
    [upgrade] = [call for call in calls if call.startswith("meshproof ")]
    assert upgrade.startswith(f"meshproof upgrade --from {OLD} --to {NEW} --output ")
    [comment] = [call for call in calls if call.startswith(("gh ", "curl "))]
    assert "upgrade/upgrade.md" in comment and re.search(r"\b7\b", comment)
    assert exit_code == code


@RECIPES
def test_a_lock_file_in_which_something_else_moves_is_not_judged(recipe, run):
    """Where neither JAX nor Flax nor Optax moves, nothing is installed anew, and nobody is told."""
    exit_code, calls = recipe(run, "pull_request", LOCKED.replace("2.4.6", "2.5.5"))
    assert exit_code == 0
    assert not [call for call in calls if call.startswith(("meshproof ", "gh ", "curl "))]


@RECIPES
def test_the_nightly_run_looks_ahead(recipe, run):
    """From the pins to the newest of everything, pre-releases too, and without a change to comment on."""
    exit_code, calls = recipe(run, "schedule", LOCKED)
    [upgrade] = [call for call in calls if call.startswith("meshproof ")]
    assert upgrade.startswith(f"meshproof upgrade --from {OLD} --to jax,flax,optax --pre --output ")
    assert exit_code == 0 and not [call for call in calls if call.startswith(("gh ", "curl "))]


def test_the_options_exist():
    """What the recipes call is what there is."""
    told = CliRunner().invoke(app, ["upgrade", "--help"], env={"COLUMNS": "200"}).output
    for recipe in (GITHUB, GITLAB):
        [called] = re.findall(r"meshproof upgrade (.*)", re.sub(r"name: meshproof upgrade", "", recipe))
        assert all(option in told for option in [*re.findall(r"--[a-z]+", called), "--pre"])


@pytest.mark.parametrize(
    ("recipe", "schema"),
    [(GITHUB, ["vendor.github-workflows"]), (GITLAB, ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"])],
    ids=["GitHub", "GitLab"],
)
def test_the_services_would_read_it(recipe, schema, tmp_path):
    """By the services' own schemas; a key that is misspelt is refused."""
    for text, code in ((recipe, 0), (recipe.replace("script:", "scripts:").replace("runs-on:", "run-on:"), 1)):
        (tmp_path / "ci.yml").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", *schema, str(tmp_path / "ci.yml")]
        assert subprocess.run(command, capture_output=True).returncode == code
