"""`meshproof plan` as its user starts it: what it says, how fast, what it refuses, and that JAX is never imported."""

import json
import re
import subprocess
import sys

import pytest
from markupsafe import escape
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.planning.advice import size
from meshproof.planning.document import answer
from meshproof.planning.search import reckon
from meshproof.plots.plans import CHIPS, LADDER, REGIMES, draw_plan
from meshproof.plots.rooflines import ROOFLINE
from tests.drawn import lines
from tests.unit.planning.plans import question
from tests.yardstick import quiet_seconds

FLAGSHIP = (
    *("--params", "175e9", "--layers", "96", "--d-model", "12288", "--d-ff", "49152"),
    *("--batch-tokens", "4e6", "--hardware", "v5p", "--chips", "1024"),
)
ALONE = """\
import sys
import time
from meshproof.cli import app
try:
    app(sys.argv[1:])
finally:
    print(f"TOOK {time.process_time():.2f} s", file=sys.stderr)
    heavy = {"jax", "jaxlib", "flax", "numpy", "matplotlib", "reference_impl"} & sys.modules.keys()
    print("IMPORTED", sorted(heavy), file=sys.stderr)
"""
QUICK = 1.0


def invoke(*arguments):
    """`meshproof plan` in this process."""
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture(scope="module")
def told():
    """The flagship question's answer as JSON."""
    ended = invoke(*FLAGSHIP, "--json")
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def test_it_answers_in_a_second_without_jax():
    """Of a quiet core, from the start of a process of its own, whose seconds are counted and not the clock's."""

    def seconds():
        command = [sys.executable, "-c", ALONE, "plan", *FLAGSHIP]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0 and "IMPORTED []" in ended.stderr, ended.stderr
        return float(re.search(r"TOOK ([\d.]+) s", ended.stderr)[1])

    assert quiet_seconds(seconds, QUICK) < QUICK


def test_what_is_printed_is_all_there():
    """Memory by term, times, ranked meshes, doublings, the pipeline, the way there, and warnings with both numbers."""
    text = invoke(*FLAGSHIP).stdout
    for part in (
        "the model: 1.75e+11 parameters, 4,000,000 tokens a step, mixed, on 1,024 × v5p",
        "a device: 91.8 GB of 102 GB can be used, 4.59e+14 FLOP/s; products at 100% of it (--mfu)",
        *("Memory of a device, by strategy", "A step, by strategy", "The best meshes", "What more would buy"),
        *("2 × the batch", "4 × the batch", "2 × the chips", "4 × the chips", "The best pipeline: "),
        "Does it fit on one device? No: parameters, gradients and moments take 2.8 TB, 91.8 GB can be used.",
        "Does it fit if FSDP splits these over 1,024 devices? Yes: 2.73 GB each.",
        "3,906 tokens a device, needed 850",
        "! The batch does not divide between 1,024 devices",
        "need 3,999,744 or 4,000,768 tokens.",
    ):
        assert part in text, part
    assert re.search(r"^FSDP +the batch does not split", text, re.MULTILINE)
    assert re.search(r"^pipeline \+ ZeRO-1 +pipeline=32, data=32 +yes +21.9 GB +21.9 GB +1.37 GB", text, re.MULTILINE)


def test_json_and_text_agree(told):
    """Of the same document: each ranked mesh of one is in the other; terms add up, seconds are in their bounds."""
    text = invoke(*FLAGSHIP).stdout
    for plan in told["meshes"]:
        assert ", ".join(f"{axis}={count}" for axis, count in plan["mesh"].items()) in text
    for plan in told["strategies"]:
        terms = [amount or 0 for name, amount in plan["memory"].items() if name != "total"]
        assert sum(terms) == pytest.approx(plan["memory"]["total"])
        took = plan["seconds"]
        assert took["least"] <= took["step"] * (1 + 1e-9) <= took["most"] * (1 + 2e-9)
        assert plan["fits"] == (plan["memory"]["total"] <= told["hardware"]["usable_memory"])
    steps = [plan["seconds"]["step"] for plan in told["meshes"]]
    assert [float(f"{step:.3g}") for step in steps] == sorted(float(f"{step:.3g}") for step in steps)
    assert told["doublings"]["2 × the chips"]["speed_up"] > 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--config llama-70b --hardware v9 --chips 8",
            "--hardware 'v9' is no chip that is known here; expected one of v4",
        ),
        ("--config lama --hardware v5p --chips 8", "no model of this name; expected one of resnet-50"),
        ("--hardware v5p --chips 8", "expected --config MODEL, or --params with the sizes of a model of your own"),
        ("--config llama-70b --params 1 --hardware v5p --chips 8", "and not several"),
        (
            "--config llama-70b --layers 4 --hardware v5p --chips 8",
            "has sizes of its own: leave away all but --sequence",
        ),
        ("--params 7e9 --hardware v5p --chips 8", "give --batch-tokens, the tokens of a whole step, such as 4e6"),
        ("--params 7e9 --batch-tokens 1.5 --hardware v5p --chips 8", "--batch-tokens 1.5: expected a whole number"),
        (
            "--config llama-70b --precision fp8 --hardware v5p --chips 8",
            "--precision fp8: expected one of mixed, bfloat16",
        ),
        ("--config llama-70b --network dsl --hardware h100 --chips 8", "--network 'dsl' is no link that is known here"),
        ("--config llama-70b --mfu 45 --hardware h100 --chips 8", "--mfu 45: expected a share above 0 and up to 1"),
        ("--config llama-70b --memory-gb 0 --hardware h100 --chips 8", "--memory-gb 0: expected a size above 0"),
        ("--config llama-70b --hardware h100 --chips 7", "no mesh of 7 devices splits a batch of 512 sequences"),
        (
            "--params 7e9 --layers 96 --d-model 12288 --d-ff 49152 --batch-tokens 4e6 --hardware v5p --chips 8",
            "--params 7e+09 contradicts the other sizes: 96 layers of 12288 × 49152 have 1.45e+11 to 2.319e+11",
        ),
        *(
            (f"--config llama-8b --batch-tokens {size} --hardware h100 --chips 8", f"--batch-tokens {size}: expected")
            for size in ("inf", "nan", "0", "-1", "1e+300")
        ),
        *(
            (f"--config llama-8b --memory-gb {size} --hardware h100 --chips 8", f"--memory-gb {size}: expected a size")
            for size in ("inf", "nan", "1e-12")
        ),
        *(
            (
                f"--params {size} --batch-tokens 4e6 --hardware h100 --chips 8",
                f"--params {size}: expected a whole number {bound}, such as 7e9",
            )
            for size, bound in (("inf", "up to 1e+15"), *((size, "of 1,000 or more") for size in ("nan", "7.5", "70")))
        ),
        ("--config llama-8b --memory-gb 1e300 --hardware h100 --chips 8", "too large to be reckoned with"),
        (
            "--params 7e9 --layers 32 --d-model 4096 --d-ff 11008 --heads 32 --kv-heads 64 --batch-tokens 1048576 "
            "--hardware h100 --chips 8",
            "--kv-heads 64 does not divide --heads 32",
        ),
    ],
)
def test_bad_input_is_an_error(arguments, message):
    """One line that says what was given and what to do; exit code 2, and no table."""
    ended = invoke(*arguments.split())
    assert ended.exit_code == 2 and ended.stdout == ""
    assert ended.stderr.startswith("meshproof: ") and message in ended.stderr, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("seconds", ["inf", "nan"])
def test_a_limit_that_is_none_names_its_option(seconds):
    """Exit code 2, before anything is reckoned."""
    ended = invoke(*FLAGSHIP, "--verify-timeout", seconds)
    assert ended.exit_code == 2 and "--verify-timeout" in ended.stderr


def test_what_fits_nowhere_is_said():
    """By how much, on which term, and what would hold it; the tables show why. Exit code 1."""
    ended = invoke("--config", "llama-70b", "--hardware", "h100", "--chips", 8)
    assert ended.exit_code == 1 and "The best meshes" not in ended.stdout
    assert re.fullmatch(
        r"meshproof: llama-70b fits on no mesh of 8 × h100: tensor parallel \(tensor=8, .*layers recomputed\) takes "
        r"the least, 144 GB of the 76.4 GB that can be used of a device, 67.\d GB too much; its largest term is "
        r"moments, 70.5 GB. 16 chips would hold it \(the fewest of powers of two and three times these\)\n",
        ended.stderr,
    )


def test_a_model_without_layers_is_split_by_its_batch_alone():
    """What is not known is a dash, and named."""
    text = invoke("--params", "7e9", "--batch-tokens", "4e6", "--hardware", "v5p", "--chips", 64).stdout
    assert "tensor" not in text.partition("The way there")[0] and "! Activations are not counted" in text


def test_a_chip_of_two_devices_is_counted_so():
    """As JAX counts them."""
    text = invoke("--config", "llama-8b", "--hardware", "tpu7x", "--chips", 64).stdout
    assert "on 64 × tpu7x (128 devices)" in text and "data=128" in text


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (
            "--config llama-8b --hardware h100 --chips 64 --network ethernet-10 --batch-tokens 524288",
            r"FSDP over 64 devices leaves the links: 32.1 GB a step at 10 GB/s take 3.16 s, products 0.48 s. HSDP",
        ),
        (
            "--config llama-8b --hardware h100 --chips 64",
            r"The parameters fit on a device \(32.1 GB of 76.4 GB\), but not with their gradients \(32.1 GB\) and",
        ),
        (
            "--config llama-70b --hardware v5p --chips 8192",
            r"Too few microbatches for the best pipeline: 2 keep 2 stages busy 67% of the time; 9 would do so for 90%",
        ),
        (
            "--config llama-70b --hardware v5p --chips 8192",
            r"The batch is below the bound: 512 tokens a device, and data parallelism or FSDP alone need 850",
        ),
        ("--config llama-70b --hardware h100 --chips 64 --batch-tokens 65536", r"most of it [a-z ]+, over data \(net"),
        (
            "--config llama-8b --hardware v5e --chips 32",
            r"32 chips are no whole torus of 16x16: axes that are not closed",
        ),
    ],
)
def test_pitfalls_are_said_before_a_run(arguments, warning):
    """FSDP over a slow link, forgotten optimizer state, too few microbatches, a small batch: with both numbers."""
    warnings = [line for line in invoke(*arguments.split()).stdout.splitlines() if line.startswith("! ")]
    assert any(re.search(warning, line) for line in warnings), warnings


@pytest.mark.parametrize("warning", ["leaves the links", "below the bound", "Too few", "parameters fit on"])
def test_a_sound_plan_is_not_warned_of(warning):
    """A model that fits, on links, with a large batch."""
    text = invoke("--config", "gpt-2-medium", "--hardware", "h100", "--chips", 8).stdout
    assert warning not in text and "So: data parallel, mesh data=8" in text


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a plan on 64 H100s, and what it is made of."""
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    asked = ("--config", "llama-70b", "--hardware", "h100", "--chips", 64)
    ended = invoke(*asked, "--json", "--page", path)
    assert ended.exit_code == 0 and f"written: {path}" in ended.stderr
    return path.read_text(encoding="utf-8"), json.loads(ended.stdout)


def test_the_page_has_all_of_it(page):
    """Its verdict, the way there, four pictures, every table, the chip's source; nothing is fetched, no id twice."""
    text, told = page
    assert "<title>fits · llama-70b · Meshproof</title>" in text
    for title in (LADDER, REGIMES, CHIPS, ROOFLINE):
        assert f'aria-label="{title}"' in text
    for part in (told["hardware"]["source"], *told["path"], *told["warnings"]):
        assert str(escape(part.removeprefix("So: "))) in text, part
    for plan in told["meshes"]:
        assert f"<td>{', '.join(f'{axis}={count}' for axis, count in plan['mesh'].items())}</td>" in text
    assert len(re.findall("<svg ", text)) == 4 and "mathdefault" not in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(set(ids)) == len(ids) and not re.search(r'(?:src|href)="(?!#|data:)', text)


def test_the_page_of_what_fits_nowhere_says_why(tmp_path):
    """It is written all the same: the ladder shows by how much."""
    path = tmp_path / "none.html"
    ended = invoke("--config", "llama-70b", "--hardware", "h100", "--chips", 8, "--page", path)
    text = path.read_text(encoding="utf-8")
    assert ended.exit_code == 1 and "fits nowhere" in text and "its largest term is moments" in text
    assert "no step against chips" not in text, "on 16 and more it fits"


def test_what_cannot_be_drawn_is_said(tmp_path):
    """One chip, of a model without layers."""
    path = tmp_path / "bare.html"
    ended = invoke("--params", "1e9", "--batch-tokens", 4096, "--hardware", "v5p", "--chips", 1, "--page", path)
    text = path.read_text(encoding="utf-8")
    assert ended.exit_code == 0 and "no ladder: one device has nothing to split" in text
    assert "no regimes: one device" in text and "no roofline: one device sends nothing" in text


def test_pictures_show_what_the_plan_says():
    """Bars of each term that end at its total, a curve that is 1 where its law is, steps that fall with chips."""
    asked = question("llama-70b", "h100", 64, 524288)
    ladder, regimes, chips, _ = draw_plan(answer(asked))
    panel = ladder.figure.axes[0]
    totals = [text.get_text() for text in panel.texts]
    assert totals == [size(plan.memory.total) for plan in answer(asked).ladder.values()]
    batches, ratios = lines(regimes.figure.axes[0])["FSDP"]
    above = [ratio >= 1 for ratio in ratios].index(True)
    assert batches[above - 1] < 64 * 2472 * 2 / 3 * 1.05 < batches[above] * 1.1, (
        "a gather and a scatter of each 6 operations"
    )
    counts, seconds = lines(chips.figure.axes[0])["the best plan"]
    assert counts[0] == 16 and seconds == sorted(seconds, reverse=True)
    assert seconds[counts.index(64)] == pytest.approx(reckon(asked)[0].seconds)


def test_a_page_without_matplotlib_is_refused(monkeypatch, tmp_path):
    """With what installs it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "meshproof.plots.plans", raising=False)
    ended = invoke("--config", "llama-8b", "--hardware", "h100", "--chips", 8, "--page", tmp_path / "plan.html")
    assert ended.exit_code == 2 and "pip install 'meshproof[plots]'" in ended.stderr


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    """With its folder, before the trainer is read."""
    ended = invoke("--impl", "nowhere", "--hardware", "h100", "--chips", 8, "--page", tmp_path / "gone" / "plan.html")
    assert ended.exit_code == 2 and "no file can be written in" in ended.stderr
