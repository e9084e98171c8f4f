"""Points of a roofline are FLOPs over bytes sent, as one reckons them by hand, and none is above the roof."""

import pytest

from meshproof.planning.document import answer
from meshproof.planning.models import Model
from meshproof.plots import rooflines
from meshproof.plots.plans import draw_chips, draw_plan
from meshproof.plots.rooflines import LINKS, NETWORK, ROOFLINE, draw_reported, draw_roofline, point_of, points_of
from meshproof.targets import find_chip
from tests.drawn import lines, picture, texts
from tests.reports import judged_case
from tests.unit.planning.plans import plan, question

pytestmark = pytest.mark.any_stack

H100 = find_chip("h100")
DENSE = Model("dense", 7e9)
STACK = Model("stack", 12 * 2 * 1024**2, 2, 1024, 4096)
MESH = {"data": 8}


def collective(operation, size, *axes):
    """One of a case's collectives."""
    written = {"executions": 1, "tensors": 1, "dtype": "f32", "realized_as": operation, "phase": "forward"}
    return {"operation": operation, "axes": list(axes), "bytes": size} | written


def case(**facts):
    """A case of FSDP over eight devices that gathers 800 bytes and all-reduces 80, in 78,400 FLOPs of a device."""
    moved = [collective("all-gather", 800, "data"), collective("all-reduce", 80, "data")]
    return judged_case(**{"mesh": MESH, "flops": 78400, "collectives": moved} | facts)


@pytest.mark.parametrize(
    ("tokens", "intensity", "flops"),
    [
        (8_192, 6 * 7e9 * 8_192 / 8 / 24.5e9, 6 * 7e9 * 8_192 / 8 / 24.5e9 * 450e9),
        (1_048_576, 6 * 7e9 * 1_048_576 / 8 / 24.5e9, H100.flops),
    ],
)
def test_fsdp_is_on_the_roof(tokens, intensity, flops):
    """7e9 parameters of 2 bytes, gathered once and scattered once, 7/8 sent: 24.5 GB; few tokens wait, many compute."""
    [point] = points_of(plan(question(DENSE, "h100", 8, tokens), zero=3, data=8), H100)
    assert (point.name, point.over) == ("FSDP", LINKS)
    assert (point.intensity, point.flops) == pytest.approx((intensity, flops))


def test_what_leaves_a_host_is_sent_over_each_adapter():
    """Of 16 devices on two hosts: gradients are all-reduced, 28 GB · 15/16, an eighth of it over each of 8 adapters."""
    [point] = points_of(plan(question(DENSE, "h100", 16, 65_536), data=16), H100)
    assert point.over == NETWORK
    assert point.intensity == pytest.approx(6 * 7e9 * 65_536 / 16 / (28e9 * 15 / 16 / 8))
    assert point.flops == pytest.approx(min(H100.flops, point.intensity * 50e9))


def test_stages_send_whole_activations():
    """[t, D] forward and back in each of 4 microbatches; with idle stages and exposed sends it is below the roof."""
    asked = question(STACK, "h100", 2, 4096)
    [point] = points_of(plan(asked, pipeline=2, microbatches=4), H100)
    assert point.intensity == pytest.approx(6 * 12 * 2 * 1024**2 * 4096 / 2 / (2 * 4 * 1024 * 1024 * 2))
    assert point.flops < min(H100.flops * 4 / 5, point.intensity * 450e9) * (1 + 1e-9)


def above(drawn, points):
    """The points that no roof of their kind covers."""
    roofs = {label: ys[-1] / xs[-1] for label, (xs, ys) in lines(drawn).items() if label.startswith((LINKS, NETWORK))}
    most = {
        way: max(rate for label, rate in roofs.items() if label.startswith(way)) for way in {p.over for p in points}
    }
    return [point for point in points if point.flops / 1e12 > most[point.over] * point.intensity * (1 + 1e-9)]


@pytest.mark.parametrize(("model", "chip", "chips"), [("llama-70b", "h100", 64), ("llama-8b", "v5p", 1024)])
def test_no_plan_is_above_its_roof(monkeypatch, model, chip, chips):
    """Of every strategy, over links of one axis and of several and over the network; counted in bits, some would be."""
    asked = question(model, chip, chips, 524_288)
    plans = list(answer(asked).plans)
    points = [point for each in plans for point in points_of(each, asked.chip)]
    panel = draw_roofline(asked.chip, asked.reached, plans, (), ["below"]).figure.axes[0]
    assert len(points) > 10 and not list(above(panel, points))
    assert all(point.flops <= asked.reached * (1 + 1e-9) for point in points)
    monkeypatch.setattr(rooflines, "intensity", lambda flops, amount: flops / (8 * amount))
    assert list(above(panel, [point for each in plans for point in points_of(each, asked.chip)]))


def test_a_case_is_where_its_record_has_it():
    """800 · 7/8 and twice 80 · 7/8 bytes are 840: 93.3 FLOPs a byte, and 450 GB/s times as many at most."""
    point = point_of(case(), H100, H100.flops)
    assert (point.name, point.over) == ("single_device", LINKS)
    assert (point.intensity, point.flops) == pytest.approx((78400 / 840, 78400 / 840 * 450e9))
    assert point_of(case(flops=8.4e9), H100, H100.flops).flops == H100.flops


def test_a_case_of_a_chip_sends_over_its_own_network():
    """Over two hosts of eight: 800 · 15/16 bytes at eight adapters' 400 GB/s."""
    moved = [collective("all-gather", 800, "data")]
    far = case(target="gpu:h100:2x8", mesh={"data": 16}, collectives=moved)
    assert point_of(far, H100, H100.flops).flops == pytest.approx(78400 / 750 * 400e9)


def test_what_a_loop_repeats_is_counted_as_often():
    """Where the report has the FLOPs of products; a program that does not tell has its compiler's."""
    one, looped = point_of(case(), H100, H100.flops), point_of(case(product_flops=8 * 78400), H100, H100.flops)
    assert looped.intensity == 8 * one.intensity
    assert point_of(case(product_flops=None), H100, H100.flops) == one
    assert point_of(case(product_flops=78400, flops=None), H100, H100.flops) == one


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"flops": None}, "its FLOPs or its bytes are not known"),
        ({"flops": -1}, "its FLOPs or its bytes are not known"),
        ({"collectives": None}, "its FLOPs or its bytes are not known"),
        ({"collectives": [collective("all-gather", None, "data")]}, "its FLOPs or its bytes are not known"),
        ({"collectives": []}, "it sends nothing"),
        ({"mesh": {"data": 1}}, "it sends nothing"),
        ({"target": "tpu:v5e:2x4"}, "it was compiled for v5e"),
        ({"target": "gpu:h1"}, "its collectives cannot be read: --target gpu:h1: no gpu is called 'h1'"),
        ({"collectives": [collective("all-gather", 8, "model")]}, "its collectives cannot be read: 'model'"),
        ({"collectives": [collective("gossip", 8, "data")]}, "its collectives cannot be read: operation 'gossip'"),
        ({"flops": 10**400}, "its collectives cannot be read: int"),
    ],
)
def test_a_case_without_a_place_says_why(facts, reason):
    """Never a point at zero, never a traceback."""
    assert point_of(case(**facts), H100, H100.flops).startswith(reason)


def test_the_picture_has_roofs_plans_and_cases():
    """Where a slope meets the peak is C/W, 2,198 on links; cases are on the roof and, below it, beside their names."""
    asked = question("llama-8b", "h100", 8)
    report = {"cases": [case(), case(strategy="fsdp", flops=840), case(collectives=[], id="idle")]}
    drawn = draw_plan(answer(asked), [("seen", report)])[-1]
    assert drawn.question == ROOFLINE and drawn.remarks == ("no point of idle in seen: it sends nothing",)
    panel, names = drawn.figure.axes
    found = lines(panel)
    assert found["links: 450 GB/s"][0][1] == pytest.approx(asked.peak / 450e9) and "2,198" in texts(panel)
    assert found["a case, at most (2)"] == [pytest.approx([78400 / 840, 1]), pytest.approx([42, 0.45])]
    [strategy] = [label for label in found if label.startswith("FSDP + tensor")]
    best = next(each for each in answer(asked).plans if each.layout.name == strategy)
    assert found[strategy][1][0] == pytest.approx(best.mfu * best.peak / 1e12)
    rows = [label.get_text() for label in names.get_yticklabels()]
    assert [[x, rows[int(y)]] for x, y in zip(*names.get_lines()[0].get_data(), strict=True)] == [
        [pytest.approx(78400 / 840), "single_device"],
        [1, "fsdp"],
    ]
    assert rooflines.COUNTED in drawn.figure.get_supxlabel()


@pytest.mark.parametrize(("chips", "fewest"), [(64, 16), (8, 16)])
def test_ideal_is_from_what_was_asked(chips, fewest):
    """On more chips and on fewer; where what was asked fits nowhere, from the fewest chips that hold it."""
    asked = question("llama-70b", "h100", chips, 524_288)
    panel = draw_chips(asked).figure.axes[0]
    counts, seconds = lines(panel)["the best plan"]
    start = max(chips, fewest)
    assert counts[0] == fewest and lines(panel)["ideal, from what was asked"][1] == pytest.approx(
        [seconds[counts.index(start)] * start / count for count in counts]
    )


def test_plans_at_one_place_share_a_marker():
    """Two strategies that send and take as much are named together, and drawn once."""
    panel = draw_plan(answer(question("llama-70b", "v5p", 1024)))[-1].figure.axes[0]
    assert "FSDP + tensor parallel\nHSDP + tensor parallel" in lines(panel)


def test_reports_alone_are_drawn_on_their_own_chips(reported):
    """A roofline of each chip that cases were compiled for; of a CPU there is none, and it says what would tell one."""
    far = [case(target="gpu:h100:8"), case(target="tpu:v5e:2x4")]
    drawn = {each.name: each for each in draw_reported([("seen", {"cases": far})], {"seen": "stack"})}
    assert drawn.keys() == {"roofline-h100", "roofline-v5e"}
    assert lines(drawn["roofline-v5e"].figure.axes[0])["links: 90 GB/s"][1][1] == pytest.approx(197)
    assert "compiled for h100" in drawn["roofline-v5e"].remarks[0]
    alone = picture("roofline", reported(case(expected_losses=[1.0, 2.0, 3.0])))
    assert alone.figure is None and "no roofline: no case was compiled for a chip" in alone.remarks[0]
