"""`meshproof check`, and the commands beside it, of a wheel that is installed, from a folder that is no checkout."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections import Counter

import pytest

from tests.stacks import INSTALLED, ROOT, make_faster, make_stack
from tests.wheels import TRAVELS, build, contents, expected, install

TRAINER = (ROOT / "docs" / "adapters" / "optax_loop.py").read_text(encoding="utf-8")
BROKEN = TRAINER.replace('NamedSharding(self.mesh, PartitionSpec("data"))', "NamedSharding(self.mesh, PartitionSpec())")
IMPL = ("--impl", "my_trainer.meshproof")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    return build(tmp_path_factory.mktemp("wheel"), "--wheel")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Its environment."""
    folder = tmp_path_factory.mktemp("installed") / "environment"
    install(wheel, folder)
    return folder


@pytest.fixture
def user(installed, tmp_path, monkeypatch):
    """A user in an empty folder, who runs commands."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def run(*words):
        command = [installed / "bin" / words[0], *words[1:]]
        return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=here)

    run.here, run.suites = here, next(installed.glob("lib/*/site-packages/meshproof/suites"))
    return run


def write_trainer(here, text=TRAINER):
    """A trainer of the user's own, in the folder in which the command is called."""
    (here / "my_trainer").mkdir(exist_ok=True)
    (here / "my_trainer" / "meshproof.py").write_text(text, encoding="utf-8")


def failed(run):
    """The words of a command that is to have failed by one error, and not by a traceback."""
    output = run.stdout + run.stderr
    assert run.returncode in (2, pytest.ExitCode.USAGE_ERROR) and "Traceback" not in output, output
    return output


def files(folder):
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_the_wheel_has_every_file(wheel):
    """Instruments, book, suites with their expectations, benchmarks; and no top-level name beside its own two."""
    assert Counter(contents(wheel).keys()) == Counter(expected())
    assert {name.partition("/")[0] for name in contents(wheel)} == {"meshproof", "reference_impl"}
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    assert "Requires-Dist: pytest-xdist\n" in metadata and "Requires-Dist: pytest-benchmark>" in metadata


@pytest.mark.parametrize("lost", ["meshproof/suites/expectations.toml", "meshproof/check.ini"])
def test_a_lost_file_is_noticed(tmp_path, lost):
    """Of a kind that no import would miss, where the settings of the build leave it out."""
    for name in (*TRAVELS, "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    settings = (tmp_path / "pyproject.toml").read_text()
    name = lost.rpartition("/")[2]
    planted = settings.replace('exclude = ["/b', f'exclude = ["*{name}", "/b')
    (tmp_path / "pyproject.toml").write_text(planted)
    built = contents(build(tmp_path / "wheel", "--wheel", source=tmp_path))
    assert planted != settings and set(expected(tmp_path)) - set(built) == {lost}


def test_the_sdist_makes_the_same_wheel(wheel, tmp_path):
    """File by file."""
    sdist = build(tmp_path / "sdist", "--sdist")
    assert contents(build(tmp_path / "wheel", "--wheel", source=sdist)) == contents(wheel)


def test_the_installed_stack_is_judged(user):
    """By the installed suites, under the ids that a checkout has; nothing is left but pytest's cache and the report."""
    chosen = ("-k", "single_device-jax-mlp and losses and not adam", "--conformance-report", "report.json")
    run = user("meshproof", "check", *chosen)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"suites: {user.suites}\n" in run.stdout and "warning" not in run.stdout.lower()
    report = json.loads((user.here / "report.json").read_text())
    assert (report["run"]["command"], report["run"]["arguments"]) == ("meshproof check", [*chosen])
    judged = [test["id"] for clause in report["clauses"] for test in clause["tests"]]
    assert judged and all(test.startswith("suites/test_losses_equal_truth.py::test_") for test in judged)
    assert files(user.here) == [".pytest_cache", "report.json"]
    assert user("meshproof", "html", "report.json").returncode == 0
    assert "<pre>meshproof check -k" in (user.here / "report.html").read_text()


@pytest.mark.every_stack
def test_a_trainer_from_the_current_folder_is_judged(user):
    """In processes of its own, under xdist too."""
    write_trainer(user.here)
    run = user("meshproof", "check", *IMPL, "-n", "2")
    assert run.returncode == 0 and "\nclauses: 0 failed, 0 expected-failure, 29 proved, 9 not-" in run.stdout, (
        run.stdout
    )


def test_a_broken_trainer_fails_with_a_command_that_shows_it_again(user):
    """Exit code 1; what is printed runs that test alone, and so does the path in pytest's own summary."""
    write_trainer(user.here, BROKEN)
    run = user("meshproof", "check", *IMPL, "-k", "batches_are_sharded")
    assert run.returncode == 1 and "SHD-4 is violated" in run.stdout, run.stdout + run.stderr
    [alone] = set(re.findall("(?m)^run it alone: (.*)", run.stdout))  # its summary says it too, where CI is set
    [listed] = [line.partition(" ")[2] for line in run.stdout.splitlines() if line.startswith("FAILED ")]
    assert alone.startswith("meshproof check 'suites/test_batches_are_sharded.py::test_")
    for words in (shlex.split(alone), ["meshproof", "check", listed.partition(" - ")[0], *IMPL]):
        again = user(*words)
        assert again.returncode == 1 and "1 failed" in again.stdout and "passed" not in again.stdout, again.stdout


@pytest.mark.thorough
def test_options_are_pytests_own(user):
    """What failed last is known here, and not where meshproof is installed."""
    write_trainer(user.here, BROKEN)
    assert user("meshproof", "check", *IMPL, "-x", "-q", "-k", "sharded or finite").returncode == 1
    again = user("meshproof", "check", *IMPL, "--lf", "-q")
    assert again.returncode == 1 and "1 failed" in again.stdout and "passed" not in again.stdout, again.stdout
    assert not list(user.suites.parent.rglob(".pytest_cache"))
    assert "--conformance-report" in user("meshproof", "check", "-h").stdout


@pytest.mark.parametrize(
    ("impl", "text", "words"),
    [
        ("my_trainer", None, ["No module named 'my_trainer'", "looked in {here} (the current folder), {packages}"]),
        ("my_trainer.nowhere", TRAINER, ["'my_trainer.nowhere'", "expected nowhere.py or nowhere/ in {here}/my_train"]),
        ("my_trainer/meshproof.py", TRAINER, ["expected the dotted name", "my_trainer.meshproof for"]),
        (
            IMPL[1],
            "import torchh",
            ["its own code fails at {here}/my_trainer/meshproof.py:1 (", "No module named 'tor"],
        ),
        (IMPL[1], "x = (", ["its own code fails (SyntaxError: ", "(meshproof.py, line 1)"]),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_error(user, impl, text, words):
    """Where it was sought, or what its own import ended with."""
    if text:
        write_trainer(user.here, text)
    said = failed(user("meshproof", "check", "--impl", impl))
    for word in words:
        assert word.format(here=user.here, packages=user.suites.parents[1]) in said, said


def test_settings_of_the_folder_are_not_those_of_the_suites(user):
    """The user's own tests have them: options, a conftest, suites of another kind. None is read, and none is needed."""
    (user.here / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\nfilterwarnings = error\n")
    (user.here / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--cov"\n')
    (user.here / "conftest.py").write_text("raise RuntimeError('the conftest of another project')\n")
    (user.here / "suites").mkdir()
    (user.here / "suites" / "test_losses_equal_truth.py").write_text("def test_mine():\n    assert False\n")
    run = user("meshproof", "check", "suites/test_losses_equal_truth.py", "-k", "single_device-jax-mlp", "--co", "-q")
    assert run.returncode == 0 and "test_losses_equal_truth[single_device-jax-mlp" in run.stdout, run.stdout
    assert "test_mine" not in run.stdout


@pytest.mark.parametrize("name", ["meshproof.py", "reference_impl/__init__.py"])
def test_a_module_that_would_hide_meshproof_is_refused(user, name):
    """An adapter is easily called so; from there Python would import it instead."""
    (user.here / name).parent.mkdir(exist_ok=True)
    (user.here / name).write_text("")
    sides = ("--from", INSTALLED.parents[2], "--to", INSTALLED.parents[2])
    others = ["upgrade", *sides], ["ab", *sides], ["bisect", "--good", "a==1", "--bad", "a==2"]
    for words in (["check"], *(others if name == "meshproof.py" else ())):
        said = failed(user("meshproof", *words))
        assert f"{user.here / name} hides" in said and "rename it" in said, said


@pytest.mark.thorough
def test_expectations_of_the_installation_are_not_rewritten(user):
    """A file of the user's own is asked for."""
    chosen = ("-k", "single_device-jax-mlp and finite and not adam", "--conformance-report", "report.json")
    assert user("meshproof", "check", *chosen).returncode == 0
    before = (user.suites / "expectations.toml").read_bytes()
    assert "name a --file of your own" in failed(user("meshproof", "expectations", "update", "report.json"))
    assert (user.suites / "expectations.toml").read_bytes() == before and not (user.here / "suites").exists()


@pytest.mark.usefixtures("user")
def test_an_installation_without_suites_is_one_error(installed, tmp_path):
    """Nothing is judged by what is left."""
    shutil.copytree(installed, tmp_path / "environment", symlinks=True)
    [suites] = (tmp_path / "environment").glob("lib/*/site-packages/meshproof/suites")
    shutil.rmtree(suites)
    command = [tmp_path / "environment" / "bin" / "python", "-m", "meshproof", "check"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=tmp_path)
    assert "install meshproof again" in failed(run)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    """The same stack twice, without meshproof; in the second an optimizer learns faster."""
    folders = [tmp_path_factory.mktemp("stacks") / name for name in ("old", "new")]
    packages = [make_stack(folder, sees=[INSTALLED]) for folder in folders]
    make_faster(packages[1])
    return ["--from", folders[0], "--to", folders[1]]


@pytest.mark.thorough
def test_an_upgrade_is_tried_from_there(user, stacks):
    """The suites of the installation judge a trainer of this folder in environments that have neither."""
    write_trainer(user.here)
    run = user("meshproof", "upgrade", *stacks, *IMPL, "-k", "losses_equal")
    assert run.returncode == 1 and "loss of step 2" in run.stdout, run.stdout + run.stderr
    reports = [json.loads((user.here / f"upgrade-{side}.json").read_text()) for side in ("from", "to")]
    assert [len(report["cases"]) for report in reports] == [1, 1]


@pytest.mark.thorough
def test_two_stacks_are_timed_from_there(user, stacks):
    """The benchmarks of the installation, on a trainer of this folder."""
    write_trainer(user.here)
    options = ("-k", "test_step_time", "--rounds", "8", "--sessions", "1", "--target", "cpu", "--json", "ab.json")
    run = user("meshproof", "ab", *stacks, *IMPL, *options)
    [found] = json.loads((user.here / "ab.json").read_text())["benchmarks"]
    assert found["name"].startswith("benchmarks/test_step_time.py::test_step_time[data_parallel"), run.stdout
    assert [len(side) for side in found["seconds"][0].values()] == [8, 8], run.stdout


def test_benchmarks_are_run_from_there(user):
    """A folder of benchmarks is named as in a checkout."""
    run = user(
        "meshproof", "check", "benchmarks/test_step_time.py", "-k", "single_device", "--benchmark-disable", "--co"
    )
    assert run.returncode == 0 and "benchmarks: --size tiny on 8 virtual CPU devices" in run.stdout, run.stdout


def test_a_clause_is_sought_in_the_installed_suites(user):
    """Before the first environment is made."""
    said = failed(user("meshproof", "bisect", "--good", "jax==0.10.2", "--bad", "jax==0.11.0", "--clause", "COM-99"))
    assert "--clause 'COM-99': no test in suites/ judges it" in said


def test_a_checkout_that_is_not_installed_judges_by_its_own_suites(user):
    """Whichever meshproof is installed: from there Python imports that of the checkout."""
    for name in ("meshproof", "reference_impl", "suites", "conftest.py", "pyproject.toml"):
        (user.here / name).symlink_to(ROOT / name)
    run = user("meshproof", "check", "suites/test_defaults_are_known.py", "--co")
    assert run.returncode == 0 and f"suites: {ROOT / 'suites'}\n" in run.stdout, run.stdout + run.stderr
    assert "rootdir: " + str(user.here) in run.stdout


def test_a_checkout_judges_by_its_own_suites(tmp_path):
    """Where meshproof is a checkout, as an editable installation has it, also from another folder."""
    write_trainer(tmp_path, BROKEN)
    command = [sys.executable, "-m", "meshproof", "check", *IMPL, "-k", "batches_are_sharded"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables)
    assert run.returncode == 1 and f"suites: {ROOT / 'suites'}\n" in run.stdout, run.stdout + run.stderr
    assert "run it alone: meshproof check 'suites/test_batches" in run.stdout
    assert files(tmp_path) == [".pytest_cache", "my_trainer"]
