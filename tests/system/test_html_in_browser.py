"""The page in a real browser: it fits, opens, prints, obeys the reader's scheme, and asks nobody for anything."""

import re

import pytest
from typer.testing import CliRunner

from meshproof.cli import app
from meshproof.commands.plots import inline_benchmarks
from meshproof.html import render_page
from tests import browser as browsers
from tests.reports import LONG, comparison, new_report, old_report
from tests.timings import pipeline_step, save, single_device, train_step

DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def browser(request):
    """The browser, headless. Without one these tests are not exercised; with --require-browser they fail."""
    if reason := browsers.missing():
        end = pytest.fail if request.config.getoption("require_browser") else pytest.skip
        end(reason)
    with browsers.browser() as started:
        yield started


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The page of one report, that of two, one with pictures of benchmarks, and one of a plan, as files."""
    folder, new, old = tmp_path_factory.mktemp("pages"), new_report(), old_report()
    steps = [single_device(), *(train_step(mesh={"data": n}, seconds=n / 10) for n in (2, 8))]
    bench = save(folder / "bench.json", *steps, *(pipeline_step(n, (n + 3) / 100) for n in (4, 8, 16)))
    asked = [
        *["plan", "--config", "llama-70b", "--hardware", "h100", "--chips", "64", "--page"],
        str(folder / "plan.html"),
    ]
    assert CliRunner().invoke(app, asked).exit_code == 0
    pages = {
        "one": render_page(new),
        "two": render_page(new, old, comparison(old, new)),
        "timed": render_page(new, pictures=inline_benchmarks([bench])),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in (*pages, "plan")}


@pytest.fixture
def visit(browser):
    """Open a page at a size in a scheme. At the end, it has complained of nothing and fetched nothing but itself."""
    opened = []

    def opening(url, size=DESKTOP, scheme="light"):
        width, height = size
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        complaints, requests = [], []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        opened.append((page, url, complaints, requests))
        return page

    yield opening
    for page, url, complaints, requests in opened:
        page.close()
        assert not complaints
        assert set(requests) == {url}


def fits(page):
    """Whether nothing makes the page itself scroll sideways."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("name", ["one", "two", "timed", "plan"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_page_fits_closed_and_open(visit, files, tmp_path, name, size):
    """No sideways scrolling at either width, with everything closed and with everything open."""
    page = visit(files[name], size)
    assert page.locator("h1").is_visible() and fits(page)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.locator("pre").first.is_visible() and fits(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert len(page.screenshot(path=tmp_path / "page.png")) > 10_000


def test_difference_opens_at_a_click(visit, files):
    """One line for three cases; a click shows each with its message."""
    page = visit(files["two"])
    first = page.locator("details.difference").first
    assert first.locator("h4").all_inner_texts() == [""] * 3 and not first.locator("pre").first.is_visible()
    first.locator("summary").click()
    assert first.locator("h4").all_inner_texts() == ["fsdp-jax-mlp@data=8", "fsdp-nnx-mlp@data=8", LONG]
    assert "run it alone: pytest" in first.locator("pre").last.inner_text()


def test_matrix_leads_to_the_strategy(visit, files):
    """A name in the matrix opens its strategy, with drawings that have words for who cannot see them."""
    page = visit(files["two"])
    inside = page.locator("#strategy-2")
    assert not inside.is_visible()
    page.locator(".matrix a", has_text="fsdp").first.click()
    inside.wait_for(state="visible")
    labels = [drawing.get_attribute("aria-label") for drawing in inside.locator("svg").all()]
    assert any("truth: 3.52 to 2.14. old: 3.872 to 2.365. new: 3.52 to 2.15." in label for label in labels)
    assert any("dimension 0 over data" in label for label in labels)
    assert all(labels)


def test_scheme_is_the_readers(visit, files):
    """Dark text on light, or light on dark."""
    shown = "[...getComputedStyle(document.body).%s.matchAll(/\\d+/g)].reduce((sum, part) => sum + +part[0], 0)"
    for scheme, darker, lighter in (("light", "color", "backgroundColor"), ("dark", "backgroundColor", "color")):
        page = visit(files["two"], scheme=scheme)
        assert page.evaluate(shown % darker) < 150 < 600 < page.evaluate(shown % lighter)


def test_pictures_are_drawn_under_the_policy(visit, files):
    """Bars, curves and words of every picture are there, dark on white in either scheme; each id is there once."""
    for scheme in ("light", "dark"):
        page = visit(files["timed"], scheme=scheme)
        drawings = page.locator(".plot svg").all()
        assert [drawing.get_attribute("aria-label") for drawing in drawings] == [
            "Speed-up of each strategy over the single device",
            "Time of a train step against mesh",
            "Efficiency of pipelines against microbatches",
        ]
        for drawing in drawings:
            assert drawing.bounding_box()["height"] > 150
            inks = drawing.evaluate(computed("text", "fill"))
            assert inks and all(sum(map(int, re.findall(r"\d+", ink))) < 400 for ink in inks)
        assert "rgb(0, 114, 178)" in drawings[-1].evaluate(computed("path", "stroke"))
        last = page.locator(".plot").last
        assert last.evaluate("each => getComputedStyle(each).backgroundColor") == "rgb(255, 255, 255)"
        assert "theory, S=4: 1 − 3/(M + 3)" in last.inner_text()
        markers = drawings[-1].evaluate("each => [...each.querySelectorAll('use')].map(use => use.getBBox().height)")
        assert sum(height > 3 for height in markers) >= 3
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
        assert len(set(ids)) == len(ids)


def computed(tag, style):
    """A script: what a style of each such part of an element is in the end."""
    return f"each => [...each.querySelectorAll('{tag}')].map(part => getComputedStyle(part).{style})"


def test_print_shows_what_is_closed(visit, files):
    """On paper, differences and messages are open, and a PDF can be made."""
    page = visit(files["two"])
    message = page.locator("section[aria-labelledby=differences] pre").first
    assert not message.is_visible()
    page.emulate_media(media="print")
    assert message.bounding_box()["height"] > 40
    assert page.pdf().startswith(b"%PDF")
