"""Documents say what is so today: the README is one page, its figures are counted, and every link leads somewhere."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs import readme, window
from docs.generated import MADE, RUN, stale
from meshproof import pytest_plugin
from meshproof.comparison import plugin as comparison
from meshproof.expectations import plugin as expectations
from meshproof.judging.spec import read_clauses
from meshproof.run import operations
from tests.documents import BYTES, LINES, anchors, dead_links, excess, not_indexed, options, python_blocks

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def written(tmp_path):
    """Write documents under a root of their own, by path."""

    def write(**texts):
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('__', '/')}.md"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_the_readme_is_one_page():
    """At most 150 lines and 10 kB."""
    assert list(excess(README)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\n" * (LINES + 1), "README.md has 151 lines, expected at most 150"), ("é" * BYTES, "20,000 bytes")],
)
def test_a_long_readme_is_noticed(text, message):
    """By its lines, and by its bytes."""
    assert list(excess("a\n" * LINES)) == []
    [problem] = excess(text)
    assert message in problem


@pytest.mark.parametrize("part", MADE, ids=":".join)
def test_what_is_made_is_of_today(part):
    """Figures, tables, the page of the book and the census are those of the code beside them."""
    assert list(stale({part: MADE[part]}, ROOT)) == []


def test_a_stale_table_is_noticed(written):
    """By its document and its name, with what writes it; so is a document that has lost a marker."""
    root = written(docs__strategies="<!-- strategies -->\n| one row less |\n<!-- /strategies -->\n")
    parts = {("docs/strategies.md", "strategies"): lambda: "| one row less |\n| and one |"}
    [problem] = stale(parts, root)
    assert "docs/strategies.md: strategies is out of date; `python -m docs.generated`" in problem
    written(docs__strategies="<!-- strategies -->\n| one row less |\n")
    with pytest.raises(ValueError, match=r"no <!-- strategies -->"):
        list(stale(parts, root))


def test_every_part_is_made():
    """What stands between markers in a document is made by somebody, or is known to be measured."""
    measured = {("docs/performance.md", name) for name in ("overhead", "compile-only", "growth", "workers")}
    measured |= {("docs/adapters.md", name) for name in ("false-alarms", "zoo-alarms")}
    measured |= {("docs/adopt.md", name) for name in ("pages", "faults")} | {("docs/compatibility.md", "checkpoints")}
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
        for name in re.findall(r"^<!-- /(\S+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == MADE.keys() | RUN.keys() | measured


def test_the_readme_shows_a_page_whole():
    """`fsdp.py`, as it is."""
    source = (ROOT / "reference_impl" / "strategies" / "fsdp.py").read_text(encoding="utf-8")
    assert source in python_blocks(README)


def test_a_changed_page_is_noticed(written):
    """A page that is edited in the README alone is out of date."""
    root = written(README=README.replace("embed→data", "mlp→data"))
    part = ("README.md", "page")
    assert len(list(stale({part: MADE[part]}, root))) == 1


def test_a_survivor_is_counted(monkeypatch):
    """The figures are counted, not written: a mutant that nobody catches shows."""
    fates = readme.kept()
    survivor = SimpleNamespace(**vars(fates[0]) | {"caught_by": ()})
    monkeypatch.setattr(readme, "kept", lambda: [survivor, *fates[1:]])
    assert f"**{len(fates) - 1} of {len(fates)} faults caught**" in readme.figures()


def test_a_stack_that_fails_is_no_support():
    """A stack of the window on which a test fails is refused, and so is a page without stacks."""
    row = "| 0.12.0.1 | 0.12.12 | 3.12 | 3,991 | 0 | 17 | {} |\n"
    assert readme.supported(row.format(0)) == [("0.12.0.1", "3,991")]
    for rows in (row.format(0) + row.format(2), ""):
        with pytest.raises(ValueError, match="none failed"):
            readme.supported(rows)


def test_the_window_is_that_of_the_constraints():
    """docs/compatibility.md is begun as its generator begins it, and has a row for each stack that is pinned."""
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert text.startswith(window.HEAD)
    stacks = [jax for jax, _ in readme.supported(text)]
    pins = [path.read_text(encoding="utf-8") for path in (ROOT / "constraints").glob("*.txt")]
    assert sorted(stacks) == sorted(re.search(r"^jax==(\S+)$", text, re.MULTILINE)[1] for text in pins)


def test_the_run_that_the_readme_shows_has_every_clause():
    """The clauses of the run that is pasted are as many as there are."""
    counted = sum(map(int, re.findall(r" (\d+) [a-z-]+", re.search(r"^clauses: .*$", README, re.MULTILINE)[0])))
    assert counted == len({clause.id for clause in read_clauses(ROOT)})


def test_no_figure_of_the_readme_ages():
    """Seconds and minutes stand in docs/performance.md."""
    assert re.findall(r"\d+(?:\.\d+)? ?(?:s|ms|seconds|minutes|hours)\b", README) == []


def test_links_lead_somewhere():
    """Every relative link and anchor of every document."""
    assert list(dead_links(ROOT)) == []


def test_a_dead_link_is_noticed(written):
    """To a file, out of the checkout, to a heading of another document and of its own; what is code is no link."""
    root = written(
        README="# A\n[a](docs/b.md) [b](gone.md) [c](docs/b.md#there) [d](docs/b.md#gone) [e](#a) [f](#b) [g](../x)\n"
        "[h](https://example.org/gone.md)\n```\n[i](in/code.md)\n# no heading\n```\n",
        docs__b="# B\n## There!\n## There\n",
    )
    assert list(anchors(root / "docs" / "b.md")) == ["b", "there", "there-1"]
    assert list(dead_links(root)) == [
        "README.md: (gone.md) leads to no file",
        "README.md: (docs/b.md#gone) leads to no heading of docs/b.md",
        "README.md: (#b) leads to no heading of README.md",
        "README.md: (../x) leads to no file",
    ]


def test_every_document_is_in_the_index():
    """docs/README.md links each one."""
    assert list(not_indexed(ROOT)) == []


def test_a_document_that_the_index_lacks_is_noticed(written):
    """By its path."""
    root = written(docs__README="[a](a.md#there)\n", docs__a="# A\n", docs__b="# B\n")
    assert list(not_indexed(root)) == ["docs/b.md is not linked in docs/README.md"]


def taken():
    """The options that the suites add to pytest's."""
    found = set()
    group = SimpleNamespace(addoption=lambda name, **_: found.add(name))
    for plugin in (pytest_plugin, expectations, comparison, operations):
        plugin.pytest_addoption(SimpleNamespace(getgroup=lambda *_: group))
    return found


def test_options_are_those_that_there_are():
    """docs/options.md has a row for each option, and for no other."""
    documented = options((ROOT / "docs" / "options.md").read_text(encoding="utf-8"))
    assert documented == taken()


def test_an_option_is_read_from_its_row():
    """With its values or without; an option in another column is none."""
    assert options("| `--impl MODULE` | as `--that` |\n| `--quick` | |\n| `PYTHON` | |\n") == {"--impl", "--quick"}
