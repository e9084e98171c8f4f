"""The page of a saved run: its command, versions, hardware, and every number that is known."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.page import app, scaled
from tests.timings import entry, run


def timed(name, facts, measured, **identity):
    """A benchmark with rounds of 1 to 5 s."""
    told = {"host": "EPYC × 2", "steps_per_window": 10} | identity
    made = entry(f"benchmarks/{name}", identity=told, facts=facts, measured=measured)
    made["stats"]["data"] = [1.0, 2.0, 3.0, 4.0, 5.0]
    made["extra_info"]["judged_by"] = "truth"
    return made


STEP = timed(
    "test_step_time.py::test_step_time[fsdp-jax-mlp@data=8]",
    {"bytes_by_axis": {"data": 1_500_000, "model": None}, "peak_memory_bytes": 512, "model_flops": 2e9},
    {"examples_per_second": 1234.5, "mfu": None, "compile_seconds": 1.25},
)
COLD = timed("test_compile_time.py::test_cold_compile_time[fsdp]", {"bytes_by_axis": {}}, {"compile_seconds": 3.0})
SAVED = run(COLD, STEP, problems={"b.py::test_other": "failed in call"})
SAVED |= {"datetime": "2026-11-23T07:25:28+00:00", "commit_info": {"id": "abc", "dirty": True}}
SAVED["meshproof"]["arguments"] = ["benchmarks/", "-k", "fsdp or step"]


@pytest.fixture
def write(tmp_path):
    """Writes the page of a run in which something is changed."""

    def written(**changed):
        saved, output = tmp_path / "run.json", tmp_path / "page.md"
        saved.write_text(json.dumps(SAVED | changed))
        done = CliRunner().invoke(app, [str(saved), "--output", str(output)])
        return done, output

    return written


def test_page_says_all_that_is_known(write):
    """Times are of one call of a window, or of one compilation; what is unknown is no number; a failure is named."""
    done, output = write()
    assert done.exit_code == 0, done.output
    text = output.read_text()
    for line in (
        "# Times: 2 benchmarks on 8 × cpu, 2026-11-23",
        "- command: `pytest benchmarks/ -k 'fsdp or step'`",
        "- versions: jax 0.10.2, python 3.11.7",
        "- hardware: 8 × cpu (virtual), host EPYC × 2",
        "- commit: abc, with changes",
        "- not measured: b.py::test_other: failed in call",
        "|  | median [quartiles] | examples/s | model FLOPs | moved per device, over | peak memory per device "
        "| compiled in | judged by |",
        "| `fsdp-jax-mlp@data=8` | 300 ms [150, 450] | 1,234 | 2 G | data: 1.5 MB, model: ? | 512 B | 1.25 s | truth |",
        "| `fsdp` | 3 s [1.5, 4.5] | 3.00 s | truth |",
    ):
        assert line in text.splitlines(), text
    assert text.index("## Train steps") < text.index("## Compilations, cold") and "MFU" not in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"benchmarks": [STEP, timed("b.py::test_mine[x]", {}, {})]}, "test_mine[x] is no benchmark of the book"),
        ({"benchmarks": [STEP, timed("a::test_init_time[x]", {}, {}, devices=4)]}, "is of 2 machines"),
        ({"benchmarks": []}, "it has no benchmark"),
        ({"meshproof": None}, "was saved without meshproof's plugin"),
    ],
)
def test_a_run_without_a_page_is_refused(write, changed, words):
    """Of another house, of two machines, empty, or without what tells whether it is whole: an error, and no file."""
    done, output = write(**changed)
    assert done.exit_code == 2 and words in done.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("amount", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2.5e9, "2.5 GB"), (4e15, "4,000 TB")]
)
def test_numbers_have_their_prefix(amount, shown):
    """Up to three digits before the point."""
    assert scaled("B")(amount) == shown
