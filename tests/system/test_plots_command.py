"""`meshproof plots` and the pictures of the page: what is written, what is refused, and what neither needs."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import matplotlib
import pytest
from PIL import Image
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.plots import pipelines
from meshproof.plots.drawing import numbers, render
from meshproof.plots.pictures import draw_files
from meshproof.plots.reading import read_files
from tests.drawn import lines, picture, texts
from tests.reports import judged_case
from tests.timings import IDENTITY, entry, pipeline_step, run, single_device, train_step

ROOT = Path(__file__).parents[2]


def invoke(*arguments):
    """`meshproof` in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON, or cut off: Expecting"),
        ("", "; expected what `pytest benchmarks/ --benchmark-json FILE` or `pytest suites/"),
        ("[]", "is no run of benchmarks, no conformance report and no plan; expected what `pytest benchmarks/"),
        ('{"schema": 1, "machine": {}, "runs": []}', "is no run of benchmarks, no conformance report and no plan"),
        ('{"schema": 1, "model": {}, "hardware": {}, "strategies": []}', "this is JSON, but no plan: at "),
        ('{"schema": 1, "cases": []}', "a report of schema 1; this meshproof reads schema 2"),
        (json.dumps({"benchmarks": [train_step()]}), "was saved without meshproof's plugin"),
        (json.dumps(run(train_step(steps_per_window=0))), ".identity.steps_per_window: 0 is less than or equal"),
        (
            json.dumps(run(entry("benchmarks/test_step_time.py::test_step_time[fsdp]"))),
            "steps_per_window is None; expected",
        ),
        (json.dumps(run(train_step(mesh={"data": "8"}))), "mesh is {'data': '8'}; expected sizes by axis"),
        (json.dumps(run(train_step(seconds=0))), "at benchmarks[0].stats.data[0]: 0 is less than"),
        (json.dumps(run(train_step(measured={"mfu": "high"}))), "mfu is 'high'; expected a positive number, or null"),
        (
            json.dumps(run(train_step(test="test_init_time"))),
            "has no train step: expected benchmarks of test_step_time",
        ),
    ],
)
def test_bad_files_are_errors(tmp_path, text, message):
    """The error names the file, what was expected and what to do; the exit code is 2, and nothing is written."""
    path = tmp_path / "given.json"
    path.write_text(text, encoding="utf-8")
    ended = invoke("plots", path, "--output", tmp_path / "plots")
    assert ended.exit_code == 2 and not (tmp_path / "plots").exists()
    assert "given.json" in ended.stderr and message in ended.stderr


def test_files_of_one_name_are_refused(tmp_path, saved):
    """They could not be told apart in a legend; a file that is not there is named."""
    path = saved(single_device(), train_step())
    ended = invoke("plots", path, path, "--output", tmp_path / "plots")
    assert ended.exit_code == 2 and "two files are called bench" in ended.stderr
    assert "cannot read" in invoke("plots", tmp_path / "gone.json").stderr


def test_a_file_for_the_folder_is_refused(tmp_path):
    """Before anything is read."""
    (tmp_path / "file").write_text("kept")
    ended = invoke("plots", tmp_path / "gone.json", "--output", tmp_path / "file")
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"meshproof: --output {tmp_path / 'file'}: nothing can be written in ")


@pytest.mark.parametrize(("kind", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_pictures_are_files(tmp_path, saved, reported, kind, magic):
    """One file a question that can be answered, and a reason for each that cannot."""
    ended = invoke(
        "plots",
        saved(single_device(), train_step()),
        reported(judged_case()),
        "--output",
        tmp_path / "out",
        "--format",
        kind,
    )
    assert ended.exit_code == 0, ended.output
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == [f"losses.{kind}", f"speed-up.{kind}"]
    assert all((tmp_path / "out" / name).read_bytes().startswith(magic) for name in written)
    for reason in ("no picture against batch: ", "no picture against mesh: ", "no picture of the pipelines: "):
        assert reason in ended.stdout


@pytest.fixture(scope="module")
def plan():
    """A plan as JSON, as it is printed."""
    ended = invoke("plan", "--config", "gpt-2-medium", "--hardware", "h100", "--chips", 8, "--json")
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_plan_is_drawn(tmp_path, plan, reported):
    """Four pictures, with their remarks below them; of a report beside it the losses too, and cases on the roofline.

    Without anything that was seen or timed nothing is said of pictures of that.
    """
    (tmp_path / "plan.json").write_text(plan, encoding="utf-8")
    ended = invoke("plots", tmp_path / "plan.json", "--output", tmp_path / "alone")
    assert ended.exit_code == 0, ended.output
    names = ["chips.svg", "ladder.svg", "regimes.svg", "roofline.svg"]
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == names
    assert "\n  each batch as one microbatch" in ended.stdout and "no picture" not in ended.stdout
    moved = [judged_case()["collectives"][0]]
    ended = invoke(
        "plots",
        tmp_path / "plan.json",
        reported(judged_case(collectives=moved, mesh={"data": 8})),
        "--output",
        tmp_path / "both",
    )
    assert ended.exit_code == 0, ended.output
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == [*names[:2], "losses.svg", *names[2:]]
    texts = [(tmp_path / folder / "roofline.svg").read_text(encoding="utf-8") for folder in ("alone", "both")]
    assert ["a case, at most (1)" in text for text in texts] == [False, True]


def test_pictures_of_two_plans_do_not_meet(tmp_path, plan):
    """Each has the name of its file; a name that both have is refused."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(plan, encoding="utf-8")
    ended = invoke("plots", tmp_path / "a.json", tmp_path / "b.json", "--output", tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert ended.exit_code == 0 and written == {
        f"{name}-{file}.svg" for name in ("ladder", "regimes", "chips", "roofline") for file in ("a", "b")
    }
    ended = invoke("plots", tmp_path / "a.json", tmp_path / "a.json")
    assert ended.exit_code == 2 and "two files are called a" in ended.stderr


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_carries_its_numbers(tmp_path, saved, kind):
    """As JSON in its description: what it says, the points of its lines, the lengths of its bars."""
    drawn = picture("speed-up", saved(single_device(0.1), train_step(seconds=0.05)))
    path = tmp_path / f"picture.{kind}"
    path.write_bytes(render(drawn, kind))
    if kind == "svg":
        [found] = re.findall("<dc:description>(.*?)</dc:description>", path.read_text(encoding="utf-8"))
    else:
        found = Image.open(path).info["Description"]
    told = json.loads(unescape(found))
    [panel] = told["panels"]
    assert told == numbers(drawn.figure) and told["title"] == drawn.question
    [[_, [width]]] = panel["bars"]
    assert width == pytest.approx(2) and "2.00×" in panel["words"]


def test_svg_is_the_same_each_time(saved):
    """No date, no random id, words that can be searched for; names are text, whatever they hold; no setting stays."""
    before = dict(matplotlib.rcParams)
    name = r"$\frac{<b>&" + "_"
    path = saved(single_device(), train_step(name))
    first, second = (render(picture("speed-up", path), "svg") for _ in range(2))
    assert first == second and b"<dc:date" not in first
    assert b"$\\frac{&lt;b&gt;&amp;_  (data=8)" in first
    assert dict(matplotlib.rcParams) == before


def test_page_embeds_pictures_that_do_not_meet(tmp_path, saved, reported):
    """Each reference is to an id of its own picture, no id is there twice, and nothing styles the page around it.

    As matplotlib writes them they do meet, and style all that is on the page.
    """
    bench = saved(
        single_device(),
        train_step(),
        train_step(mesh={"data": 2}, seconds=0.3),
        train_step("<script>alert(1)</script>"),
        *(pipeline_step(n, 0.1 * n) for n in (4, 8)),
    )
    ended = invoke("html", reported(judged_case()), "--output", tmp_path / "page.html", "--benchmarks", bench)
    assert ended.exit_code == 0, ended.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;  (data=8)" in page
    drawings = re.findall(r'<div class="scroll plot".*?</svg></div>', page, re.DOTALL)
    assert len(drawings) == 3 and "no picture against batch: " in page and page.count("<style>") == 1
    ids = [re.findall(r'\bid="([^"]+)"', drawing) for drawing in drawings]
    assert len(set().union(*ids)) == sum(map(len, ids))
    raw = [render(each, "svg").decode() for each in draw_files([bench])[0] if each.figure]
    assert all('id="figure_1"' in each and "<style" in each for each in raw)
    for drawing, own in zip(drawings, ids, strict=True):
        used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawing)
        assert used and {a or b for a, b in used} <= set(own)


def test_page_of_nothing_to_draw_is_an_error(tmp_path, saved, reported):
    """A page that was to have pictures and can have none is not written; nor is one over its own benchmarks."""
    bench = saved(train_step())
    ended = invoke("html", reported(judged_case()), "--output", tmp_path / "page.html", "--benchmarks", bench)
    assert ended.exit_code == 2 and "nothing can be drawn" in ended.stderr and not (tmp_path / "page.html").exists()
    ended = invoke("html", reported(judged_case()), "--output", bench, "--benchmarks", bench)
    assert ended.exit_code == 2 and "would be overwritten" in ended.stderr


def test_missing_matplotlib_is_one_error(saved):
    """Without it the command says what to install, and other commands do not miss it."""
    code = "import sys; sys.modules['matplotlib'] = None; from meshproof.cli import app; app()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "plots", saved(single_device(), train_step())], capture_output=True, text=True
    )
    told = "meshproof: pictures need matplotlib, which is not installed: pip install 'meshproof[plots]'\n"
    assert (ended.returncode, ended.stderr) == (2, told)
    ended = subprocess.run([sys.executable, "-c", code, "html", "--help"], capture_output=True, text=True)
    assert ended.returncode == 0


def test_drawing_needs_no_jax(tmp_path, saved, reported, plan):
    """Pictures are drawn where JAX is not installed, and without a window system."""
    code = (
        "import sys; from pathlib import Path; from meshproof.plots.pictures import draw_files;"
        "from meshproof.plots.inline import inline;"
        "found = [inline(each) for each in draw_files([*map(Path, sys.argv[1:])])[0] if each.figure];"
        "print(len(found), {'jax', 'flax', 'pytest', 'matplotlib.pyplot'} & set(sys.modules))"
    )
    (tmp_path / "plan.json").write_text(plan, encoding="utf-8")
    paths = [saved(single_device(), train_step()), reported(judged_case()), tmp_path / "plan.json"]
    shown = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True)
    assert shown.stdout == "6 set()\n", shown.stderr


@pytest.mark.thorough
def test_real_times_are_drawn(tmp_path):
    """What `pytest benchmarks/ --size sweep` saves of a few cases is drawn, and its pipelines are one series."""
    chosen = "(single_device or data_parallel or gpipe) and not (batch1024 or microbatches16 or microbatches32)"
    command = ["benchmarks/test_step_time.py", "--size", "sweep", "-k", chosen]
    options = ["--benchmark-json", tmp_path / "real.json", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *command, *options], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout
    pictures, remarks = draw_files([tmp_path / "real.json"])
    drawn = {each.name: each.figure for each in pictures if each.figure}
    assert drawn.keys() >= {"speed-up", "batch", "mesh"} and not remarks
    [series] = pipelines.find_series(read_files([tmp_path / "real.json"]).steps)  # so few times may well not grow
    assert list(map(pipelines.microbatches, series)) == [4, 8]
    assert {"data=2\n(2)", "data=8\n(8)"} <= set(texts(drawn["mesh"].axes[0]))
    [panel] = drawn["batch"].axes
    across, milliseconds = lines(panel)["data_parallel, data=8"]
    saved = json.loads((tmp_path / "real.json").read_text(encoding="utf-8"))["benchmarks"]
    medians = {
        each["extra_info"]["identity"]["batch_size"]: 100 * each["stats"]["median"]
        for each in saved
        if "[data_parallel" in each["name"] and "@data=8" in each["name"]
    }
    assert dict(zip(across, milliseconds, strict=True)) == pytest.approx(medians)
    assert IDENTITY.keys() <= saved[0]["extra_info"]["identity"].keys()
