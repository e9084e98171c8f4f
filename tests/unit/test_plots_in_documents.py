"""The pictures of documents are of today's numbers, which they carry: a formula or a figure that changes is noticed."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs import losses, pictures
from meshproof.measures.numerics import judge_loss
from meshproof.planning import collectives, costs
from meshproof.plots import rooflines
from meshproof.targets import find_chip
from reference_impl import strategies
from reference_impl.forms.base import Form
from reference_impl.lifecycle.loss_curves import SINGLE

ROOT = Path(__file__).parents[2]
LARGEST = {"svg": 45_000, "png": 60_000}
"""Bytes. The picture of losses has 66 curves."""
PERCEPTRON = "mlp (jax)"
LADDER, REGIMES, CHIPS, ROOFLINE = pictures.PICTURES


def outdated(root=ROOT):
    """The files of pictures that are out of date, with what is told of each."""
    return {told.partition(".svg")[0] + ".svg": told for told in pictures.stale(root=root)}


def test_pictures_are_of_today():
    """Every number that each draws, and every word."""
    assert outdated() == {}


def test_every_picture_is_made_shown_and_small():
    """By a command; a document shows it, with words for who does not see it."""
    made = {*pictures.PICTURES, losses.LOSSES}
    assert made == {path.relative_to(ROOT).as_posix() for end in ("svg", "png") for path in ROOT.glob(f"docs/*.{end}")}
    shown = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md"))
    for name in made:
        assert re.search(rf"!\[[^]]{{30,}}\]\({Path(name).name}\)", shown), name
        assert (ROOT / name).stat().st_size < LARGEST[name[-3:]], name


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("flops", {REGIMES, CHIPS, ROOFLINE}),
        ("link_bandwidth", {REGIMES, CHIPS, ROOFLINE}),
        ("network_bandwidth", {CHIPS, ROOFLINE}),
        ("memory", {LADDER, CHIPS, ROOFLINE}),
    ],
)
def test_another_figure_of_a_chip_is_noticed(monkeypatch, name, changed):
    """A tenth less of it: the pictures that it is in are out of date, and no other."""

    def less(known):
        chip = find_chip(known)
        return replace(chip, **{name: type(getattr(chip, name))(0.9 * getattr(chip, name))})

    monkeypatch.setattr(pictures, "find_chip", less)
    assert outdated().keys() == changed


@pytest.mark.parametrize(
    ("place", "name", "changed"),
    [
        (collectives, "all_gather_seconds", {REGIMES, CHIPS, ROOFLINE}),
        (costs, "activation_bytes", {LADDER, CHIPS, ROOFLINE}),
        (rooflines, "best_wire_bytes", {ROOFLINE}),
    ],
)
def test_another_formula_is_noticed(monkeypatch, place, name, changed):
    """Twice what it gives today."""
    today = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *given: 2 * today(*given))
    assert outdated().keys() == changed


def test_other_work_of_the_book_is_noticed(monkeypatch):
    """Its models' FLOPs are on the roofline, and in no plan."""
    monkeypatch.setattr(Form, "model_flops", property(lambda form: SimpleNamespace(step=1e9)))
    assert outdated().keys() == {ROOFLINE}


@pytest.fixture
def copied(tmp_path):
    """A checkout with the pictures alone."""
    (tmp_path / "docs").mkdir()
    for name in pictures.PICTURES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def edit(path, old, new):
    """One place of a file is another."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_an_edited_picture_is_noticed_and_drawn_again(copied, monkeypatch):
    """By the place of the number, with what draws it again; one that is of today stays as it is, byte for byte."""
    edit(copied / CHIPS, '"words": ["56%"', '"words": ["57%"')
    edit(copied / LADDER, "<dc:description>", "<dc:note>")
    edit(copied / LADDER, "</dc:description>", "</dc:note>")
    (copied / ROOFLINE).unlink()
    edit(copied / REGIMES, "meshproof plots", "another meshproof")
    told = outdated(copied)
    assert told.keys() == {LADDER, CHIPS, ROOFLINE}
    assert told[CHIPS].startswith(f"{CHIPS}.panels[0].words[0]: '57%', which is '56%' today; `python -m docs.pictures`")
    assert told[LADDER].startswith(f"{LADDER}: None, which is ")
    monkeypatch.chdir(copied)
    pictures.write()
    assert outdated(copied) == {} and "another meshproof" in (copied / REGIMES).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recorded():
    """The numbers of the picture of losses, by model."""
    return losses.carried(ROOT / losses.LOSSES)


def margin(curve, recorded):
    """The worst of its losses, over what rounding allows beside the truth's."""
    beside = zip(curve, recorded["truth"], recorded["rounding"], strict=True)
    return max(record.margin for numbers in beside for record in judge_loss(*numbers).records)


def test_losses_are_of_every_page_of_the_book(recorded):
    """For as many steps as the picture's command says, of the networks, optimizers and data of today."""
    today = losses.pages()
    assert {page for of in recorded.values() for page in of["curves"]} == {form.name for form in strategies()}
    assert {title: [*of["curves"]] for title, of in recorded.items()} == {title: [*of] for title, of in today.items()}
    for title, of in recorded.items():
        assert of["subject"] == losses.subject([*today[title].values()][-1])
        assert {len(curve) for curve in (*of["curves"].values(), of["truth"], of["rounding"])} == {losses.STEPS}


def test_losses_are_the_truth_s_but_for_rounding(recorded):
    """In each step of each page of each model; one step's loss that is a hundred thousandth more is not."""
    for of in recorded.values():
        assert {page: margin(curve, of) for page, curve in of["curves"].items() if margin(curve, of) >= 1} == {}
        [first, *others] = of["curves"][SINGLE]
        assert margin([first * 1.00001, *others], of) > 1


def test_losses_are_of_today(recorded, monkeypatch):
    """One device trains as it did then, all steps; and the truth, of the first two. From another seed it does not."""
    page, then = losses.pages()[PERCEPTRON][SINGLE], recorded[PERCEPTRON]
    assert margin(losses.trained(page), then) < 1
    monkeypatch.setattr(losses, "STEPS", 2)
    of_two = {name: then[name][:2] for name in ("truth", "rounding")}
    assert losses.true(page) == {name: pytest.approx(numbers, rel=1e-9) for name, numbers in of_two.items()}
    monkeypatch.setattr(losses, "SEED", 1)
    assert margin(losses.trained(page), of_two) > 1
