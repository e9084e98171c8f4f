"""Pictures show what was measured, beside what it must be held against, and say what they do not show."""

import math

import pytest

from meshproof.plots import against, pipelines, speedups
from meshproof.plots.drawing import BLUE, PALE, RED
from meshproof.plots.pictures import draw_files
from meshproof.plots.reading import PlotError, read_files
from reference_impl.theory.schedules import gpipe, interleaved, one_forward_one_backward, zero_bubble
from tests.drawn import lines, picture, texts
from tests.reports import judged_case
from tests.timings import pipeline_step, single_device, train_step


def test_speed_up_is_over_the_single_device(saved):
    """A quarter of the time is four times the speed, with its mesh and its number beside it, slowest at the bottom."""
    path = saved(single_device(0.1), train_step("fsdp", 0.025), train_step("data_parallel", 0.2, {"data": 4}))
    [panel] = picture("speed-up", path).figure.axes
    assert [bar.get_width() for bar in panel.patches] == pytest.approx([0.5, 4])
    assert {"data_parallel  (data=4)", "fsdp  (data=8)", "4.00×", "0.50×"} <= set(texts(panel))
    assert panel.get_title(loc="left") == "mlp/tiny, batch 64: over single_device, 100 ms a step"


def test_whiskers_are_the_far_quartiles(saved):
    """From the single device's fast quartile over the strategy's slow one to the reverse."""
    alone, step = single_device(), train_step()
    alone["stats"]["data"], step["stats"]["data"] = [2.0, 3.0, 4.0], [1.0, 1.5, 2.0]
    material = read_files([saved(alone, step)])
    [base] = set(speedups.find_bases(material.steps).values())
    assert speedups.speed_up(material.steps[1], base) == pytest.approx((1, 2, 4))


def test_names_tell_what_differs(saved):
    """Beside its strategy a line has what the others of its panel have not: its run, its dtype, its framework."""
    batches = (64, 128)
    first = saved(*(train_step(batch=batch, dtype=dtype) for batch in batches for dtype in ("float32", "bfloat16")))
    second = saved(*(train_step(batch=batch) for batch in batches), name="second")
    [panel] = picture("batch", first, second).figure.axes
    assert set(lines(panel)) == {"fsdp, bench, float32", "fsdp, bench, bfloat16", "fsdp, second, float32"}
    frameworks = [make(framework=name) for make in (single_device, train_step) for name in ("jax", "nnx")]
    titles = [panel.get_title(loc="left") for panel in picture("speed-up", saved(*frameworks)).figure.axes]
    assert [title.partition("over ")[2] for title in titles] == [
        "single_device, jax, 100 ms a step",
        "single_device, nnx, 100 ms a step",
    ]


OTHER = {
    "model": "gpt/tiny",
    "dtype": "bfloat16",
    "batch": 65,
    "host": "Other CPU",
    "variant": "adam",
    "framework": "nnx",
    "matmul_precision": "default",
}


@pytest.mark.parametrize("part", OTHER)
def test_speed_up_is_over_nothing_else(saved, part, monkeypatch):
    """A single device of another model, batch or machine is no base; were it left out of the key, it would be."""
    path = saved(single_device(**{part: OTHER[part]}), train_step())
    with pytest.raises(PlotError, match=r"no speed-up of test_step_time\[fsdp.*has no single device, or several"):
        draw_files([path])
    key = "batch_size" if part == "batch" else part
    monkeypatch.setattr(speedups, "DIFFERING", (*speedups.DIFFERING, key))
    assert speedups.draw_speedups(read_files([path])).figure


def test_two_single_devices_are_none(saved):
    """Of two nobody can tell which is the base; nor is one that another run timed, or whose batch is not known."""
    first, second = single_device(), single_device(0.2, batch=64)
    second["fullname"] += "again"
    for paths in (
        [saved(first, second, train_step())],
        [saved(train_step()), saved(first, name="other")],
        [saved(single_device(batch=None), train_step(batch=None))],
    ):
        with pytest.raises(PlotError, match="no speed-up of"):
            draw_files(paths)


def test_what_failed_is_not_drawn(saved):
    """A test that failed has no bar, and is named; a run that broke off says so; other tests' times are no steps."""
    failed, good = train_step("zero1"), train_step("fsdp")
    forward = train_step("zero2", test="test_forward_time")
    problems = {failed["fullname"]: "failed in call", "the run": "did not finish (interrupted)"}
    pictures, remarks = draw_files([saved(single_device(), failed, good, forward, problems=problems)])
    [panel] = next(each for each in pictures if each.name == "speed-up").figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["fsdp  (data=8)"]
    assert len(remarks) == 2 and f"{failed['fullname']} is not drawn: it failed in call" in remarks[1]
    assert "the run did not finish (interrupted): what it did not reach is not drawn" in remarks[0]


def test_time_and_utilisation_against_batch(saved):
    """A line for what is alike but for the batch, in milliseconds and as MFU; what is not known leaves a gap."""
    known = [
        train_step("fsdp", 0.1 * n, batch=64 * n, variant=f"batch{64 * n}", measured={"mfu": 0.1 * n}) for n in (4, 1)
    ]
    unknown = train_step("fsdp", 0.2, batch=128)
    others = [train_step("zero1", 0.1, batch=64), train_step("zero1", 0.1, batch=128, dtype="bfloat16")]
    drawn = picture("batch", saved(*known, unknown, *others))
    time, rate = drawn.figure.axes
    assert lines(time) == {"fsdp": [[64, 128, 256], pytest.approx([100, 200, 400])]}
    [across, rates] = lines(rate)["fsdp"]
    assert across == [64, 128, 256] and [rates[0], rates[2]] == pytest.approx([0.1, 0.4]) and math.isnan(rates[1])
    assert {"batch (examples a step)", "milliseconds a step", "64", "256"} <= set(texts(time))
    [remark] = drawn.remarks
    assert remark.startswith("no MFU against batch of 1 of 3 steps: it is null, for the peak of cpu in float32")


def test_unknown_utilisation_is_not_drawn(saved):
    """Where none is known there is no panel of it, the title does not promise it, and below it is said."""
    drawn = picture("batch", saved(*(train_step(batch=batch) for batch in (64, 128))))
    [_] = drawn.figure.axes
    assert drawn.question == "Time of a train step against batch" == drawn.figure.get_suptitle()
    assert "no MFU against batch of 2 of 2 steps" in drawn.figure.get_supxlabel()


def test_time_against_mesh(saved):
    """A place for each mesh by its devices, a line for each strategy, and a dashed one for the single device."""
    cube = {"data": 4, "model": 2}
    steps = [train_step("fsdp", 0.1 * n, {"data": n}) for n in (8, 2)] + [
        train_step("split", 0.3, cube),
        train_step("split", 0.2, {"data": 1, "model": 2}),
    ]
    [panel] = picture("mesh", saved(single_device(0.05), *steps)).figure.axes
    names = ["data=1\nmodel=2\n(2)", "data=2\n(2)", "data=4\nmodel=2\n(8)", "data=8\n(8)"]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == names
    found = lines(panel)
    assert found["fsdp"] == [[1, 3], pytest.approx([200, 800])]
    assert found["split"] == [[0, 2], pytest.approx([200, 300])]
    assert found["single_device (1 device)"][1] == pytest.approx([50, 50])


def test_series_with_two_at_a_place_is_none(saved):
    """Of two times of one batch nobody can tell which is on the line."""
    twice = train_step(batch=128)
    twice["fullname"] += "again"
    material = read_files([saved(train_step(batch=64), train_step(batch=128), twice)])
    assert against.find_series(material.steps, against.BATCH) == []


def theory_is_counted():
    """Whether the drawn formula is what the schedules' own slots count."""
    shapes = [(stages, count) for stages in (1, 2, 4, 5) for count in (8, 20)]
    schedules = [make(*shape) for make in (gpipe, one_forward_one_backward, zero_bubble) for shape in shapes]
    schedules += [interleaved(stages, count, 2) for stages, count in shapes if count % stages == 0]
    return all(
        pipelines.bubble(each.stages, each.microbatches, each.chunks, each.has_weights) == pytest.approx(each.bubble)
        for each in schedules
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda stages, count, chunks=1, has_weights=False: stages / (chunks * count + stages),
        lambda stages, count, chunks=1, has_weights=False: (stages - 1) / (chunks * count + stages),
        lambda stages, count, chunks=1, has_weights=False: (stages - 1) / (chunks * count),
        lambda stages, count, chunks=1, has_weights=False: (stages - 1) / (count + stages - 1),
        lambda stages, count, chunks=1, has_weights=False: (stages - 1) / (chunks * count + stages - 1),
    ],
)
def test_theory_is_what_schedules_count(monkeypatch, wrong):
    """The dashed line is 1 − idle slots over slots of each schedule of the book; a formula off by one is not."""
    assert theory_is_counted()
    monkeypatch.setattr(pipelines, "bubble", wrong)
    assert not theory_is_counted()


@pytest.mark.parametrize(
    ("shape", "times", "work"), [({}, 1, "M"), ({"chunks": 2}, 2, "2M"), ({"has_weights": True}, 3, "3M")]
)
def test_pipeline_of_even_ticks_is_on_the_theory(saved, shape, times, work):
    """Where each tick takes as long, measured is theory; with a constant beside the ticks it is below."""
    counts = (4, 8, 32)
    seconds = [0.001 * (times * n + 3) for n in counts]
    ticks = [pipeline_step(*each, shape=shape) for each in zip(counts, seconds, strict=True)]
    slower = [
        pipeline_step(n, each + 0.004, shape=shape, strategy="slow") for n, each in zip(counts, seconds, strict=True)
    ]
    [panel] = picture("pipelines", saved(*ticks, *slower)).figure.axes
    found = lines(panel)
    theory = dict(zip(*found[f"theory, S=4: 1 − 3/({work} + 3)"], strict=True))
    promised = [times * n / (times * n + 3) for n in counts]
    assert found["pipeline_gpipe"] == [[4, 8, 32], pytest.approx(promised)]
    assert [theory[n] for n in counts] == pytest.approx(promised) and len(theory) == 29
    assert all(low < 0.99 * high for low, high in zip(found["slow"][1], promised, strict=True))


def test_what_is_no_series_of_microbatches(saved):
    """Microbatches of two sizes are not compared; a time that shrinks has no efficiency; each is said."""
    fixed = [pipeline_step(n, 0.1, batch=64) for n in (4, 8)]
    with pytest.raises(PlotError, match="no picture of the pipelines: no two pipelines differ in the number of like"):
        draw_files([saved(*fixed)])
    with pytest.raises(PlotError, match=r"no efficiency of pipeline_gpipe \(stage=4\): its time does not grow"):
        draw_files([saved(pipeline_step(4, 0.2), pipeline_step(8, 0.1))])


def test_losses_lie_on_the_truth_or_are_named(reported):
    """A panel a model: each case's curve over each truth's; one outside its bound is red and has its name."""
    good, worse = judged_case(), judged_case(margin=7.0, id="odd", strategy="odd", losses=[3.5, None, 9.0])
    other, silent = (
        judged_case("gpt", expected_losses=[3.0, 2.0, 1.0]),
        judged_case("moe", id="silent", expected_losses=[]),
    )
    drawn = picture("losses", reported(good, worse, other, silent))
    curves, distances, *_ = drawn.figure.axes
    assert len(drawn.figure.axes) == 4
    colours = [(line.get_color(), line.get_label()) for line in curves.get_lines()]
    expected = [(PALE, "truth (float64)"), (BLUE, "within the bound"), (RED, "outside the bound")]
    assert colours == expected
    truth, near, far = (line.get_ydata() for line in curves.get_lines())
    assert list(truth) == good["expected_losses"] and list(near) == good["losses"]
    assert [far[0], far[2]] == [3.5, 9.0] and math.isnan(far[1])
    assert {"odd", "within the bound: 1 case", "outside the bound: 1 case"} <= set(texts(curves))
    places = {label.get_text(): row for row, label in enumerate(distances.get_yticklabels())}
    points = {tuple(map(float, offset)) for dots in distances.collections for offset in dots.get_offsets()}
    assert points == {(0.1, places["single_device"]), (7.0, places["odd"])}
    assert drawn.remarks == ("no loss curve of silent in report: it has no losses, or no truth says them",)


def test_unjudged_losses_are_not_called_good(reported):
    """A case whose losses no bound judged is neither within nor outside one, and has no distance.

    But a loss that is no number is outside of every bound.
    """
    curves, distances = picture("losses", reported(judged_case(errors={}))).figure.axes
    assert curves.get_lines()[-1].get_label() == "judged by no bound"
    assert not any(len(dots.get_offsets()) for dots in distances.collections)
    curves, _ = picture("losses", reported(judged_case(losses=[3.5, None, 2.1]))).figure.axes
    assert curves.get_lines()[-1].get_label() == "outside the bound"
