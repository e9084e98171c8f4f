"""The house stands as its plan says: who may import whom, how long a file may be, and that collecting costs nothing."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from meshproof.cases import load_cases
from tests.conftest import ANY_STACK, runs_nowhere
from tests.yardstick import quiet_seconds

pytestmark = pytest.mark.any_stack

ROOT = Path(__file__).parents[2]
ROOMS = ("meshproof", "reference_impl", "suites", "benchmarks", "tests", "docs")
LONGEST = 300
QUICK = 2.0

NO_BACKEND = """\
import time
import jax
import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure():
    jax.config.update("jax_platforms", "none_may_start")

@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    session.config.stash["started"] = time.process_time()

@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    print(f"collecting took {time.process_time() - session.config.stash['started']:.2f} s")
"""
"""A plugin under which every attempt to start a JAX backend raises, and that counts seconds as pytest does.

But the process's own, not the clock's: what else the machine is doing is no fault of the suites. Nor is what other
plugins do once collecting is over (hypothesis imports itself to print a summary).
"""


def lint_imports(directory):
    """Check the import contracts of a tree."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--no-cache", "--no-logo"]
    return subprocess.run([sys.executable, "-c", command, *options], cwd=directory, capture_output=True, text=True)


def long_files(directory):
    """Python files beyond the cap, with their lengths."""
    for room in ROOMS:
        for path in sorted((directory / room).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > LONGEST:
                yield f"{path.relative_to(directory).as_posix()}: {lines} lines"


def collect(plugins, *arguments):
    """Collect in a fresh process that can start no JAX backend."""
    (plugins / "no_backend.py").write_text(NO_BACKEND, encoding="utf-8")
    command = f"import sys; sys.path.insert(0, {str(plugins)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-p", "no_backend", "-p", "no:cacheprovider", "-p", "no:randomly", "--collect-only", "-q"]
    return subprocess.run(
        [sys.executable, "-c", command, *options, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )


@pytest.fixture
def tree(tmp_path):
    """A copy of what the import contracts speak of."""
    for room in ("meshproof", "reference_impl"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_keep_their_contracts():
    """Nobody imports what the house forbids."""
    checked = lint_imports(ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("meshproof/measures/memory.py", "reference_impl.mapping", "The instruments never import an implementation"),
        ("reference_impl/mapping.py", "meshproof.measures.numerics", "The book needs the contract only"),
        ("reference_impl/truth/mlp.py", "meshproof", "The book needs the contract only"),
        (
            "meshproof/contract/promises.py",
            "meshproof.measures.memory",
            "The contract and the census need nothing of the house",
        ),
        ("meshproof/hlo/shapes.py", "meshproof.contract", "The contract and the census need nothing of the house"),
        ("reference_impl/truth/mlp.py", "jax.numpy", "Truth is not computed by what it judges"),
        ("reference_impl/truth/optimizers.py", "optax", "Truth is not computed by what it judges"),
        ("meshproof/plots/reading.py", "meshproof.observing.session", "Pictures are drawn without JAX"),
        ("meshproof/planning/costs.py", "meshproof.contract", "A plan is made without JAX"),
        ("meshproof/html/page.py", "meshproof.plots.drawing", "Only pictures need matplotlib"),
    ],
)
def test_forbidden_import_is_noticed(tree, importer, imported, contract):
    """A planted import breaks the contract that forbids it, also inside a function."""
    with (tree / importer).open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef planted():\n    import {imported}\n")
    checked = lint_imports(tree)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert re.search(rf"^{contract} BROKEN", checked.stdout, re.MULTILINE), checked.stdout


def test_files_are_short():
    """No Python file of the product has more than 300 lines."""
    assert not list(long_files(ROOT))


def test_long_file_is_noticed(tmp_path):
    """A file of 301 lines is named, one of 300 is not."""
    room = tmp_path / ROOMS[0]
    room.mkdir()
    (room / "short.py").write_text("pass\n" * LONGEST, encoding="utf-8")
    (room / "long.py").write_text("pass\n" * (LONGEST + 1), encoding="utf-8")
    assert list(long_files(tmp_path)) == [f"{ROOMS[0]}/long.py: 301 lines"]


def test_collecting_is_cheap(tmp_path):
    """Collecting the suites starts no JAX backend and takes less than two seconds of a quiet core."""

    def seconds():
        collected = collect(tmp_path, "suites/")
        assert collected.returncode == 0, collected.stdout + collected.stderr
        return float(re.search(r"collecting took ([\d.]+) s", collected.stdout)[1])

    assert quiet_seconds(seconds, QUICK) < QUICK


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        (["tests/system/test_launch.py"], [2]),
        (["tests/system/test_launch.py", "--thorough"], [2, 4]),
        (["tests/system/test_launch.py::test_the_page_trains_as_one_process_does"], [2, 4]),
    ],
    ids=["every run", "thorough", "named"],
)
def test_what_is_thorough_is_left_out_until_it_is_asked_for(tmp_path, arguments, counts):
    """By its option, or by its name."""
    collected = collect(tmp_path, *arguments)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert [int(count) for count in re.findall(r"one_process_does\[(\d)\]", collected.stdout)] == counts


def strangers(tests, strategies):
    """What ``-k`` with the name of a strategy chooses though it is of another one."""
    for test in tests:
        name, _, case = test.partition("[")
        yield from (f"-k {strategy}: {test}" for strategy in strategies if strategy in name and strategy not in case)


def test_a_strategy_is_chosen_by_its_name(tmp_path):
    """No suite has the name of a strategy and cases of others: each of those would have to be observed too."""
    collected = collect(tmp_path, "suites/").stdout
    tests = re.findall(r"^suites/.*::.*\[.*\]$", collected, re.MULTILINE)
    strategies = {case.strategy.name for case in load_cases("reference_impl")}
    assert len(tests) > 1000 and not list(strangers(tests, strategies))
    assert list(strangers(["suites/test_fsdp_is_small.py::test_fsdp_is_small[zero1-jax-mlp@data=8]"], strategies))


def test_started_backend_is_noticed(tmp_path):
    """A suite that asks for devices while it is imported fails that collection."""
    suite = tmp_path / "test_hasty.py"
    suite.write_text("import jax\n\njax.devices()\n\n\ndef test_nothing():\n    pass\n", encoding="utf-8")
    collected = collect(tmp_path, suite)
    assert collected.returncode != 0
    assert "none_may_start" in collected.stdout


@pytest.mark.parametrize(
    ("marks", "idle"), [("any_stack newest_stack", True), ("any_stack every_stack", False), ("newest_stack", False)]
)
def test_a_test_that_runs_nowhere_is_noticed(marks, idle):
    """CI leaves out ``newest_stack`` on A and ``any_stack`` on B."""
    assert runs_nowhere(SimpleNamespace(get_closest_marker=marks.split().__contains__)) is idle


def left_out(script):
    """What CI leaves out of ``make test``, by stack."""
    return dict(re.findall(r'^run make test "\$\{(stack_[ab])\[@\]\}".* -m \'not (\w+)\'"$', script, re.MULTILINE))


def test_ci_leaves_out_on_each_stack_what_runs_on_the_other():
    """One word twice, or on the wrong stack, would leave tests out of both."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    expected = {"stack_a": "newest_stack", "stack_b": "any_stack"}
    assert left_out(script) == expected
    assert left_out(script.replace("not any_stack", "not newest_stack")) != expected
    assert left_out(script.replace("not any_stack", "not any_stack and not fsdp")) != expected


def stack_packages(source):
    """The packages of the stack that a file of tests names, itself or by the book, the suites or planted faults."""
    return set(
        re.findall(r"^ *(?:from|import) (jax|flax|optax|orbax|reference_impl|suites|tests\.saboteurs)", source, re.M)
    )


def test_tests_of_one_stack_use_no_package_of_it():
    """What CI runs on one stack only names nothing that differs on another; and every file of the table is there."""
    for folder, names in ANY_STACK.items():
        for name in names.split():
            path = ROOT / "tests" / folder / f"test_{name}.py"
            assert not stack_packages(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    "line", ["import jax", "    from flax import nnx", "from reference_impl.truth import MLPTruth"]
)
def test_package_of_the_stack_is_noticed(line):
    """Wherever it is imported."""
    assert stack_packages(f"import json\n{line}\n")
