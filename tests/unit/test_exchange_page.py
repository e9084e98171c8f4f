"""The table of stacks that read each other's checkpoints."""

from docs import exchange
from meshproof.upgrade.checkpoints import Answers

STACKS = {"old": ["0.10.2", "0.12.8", "0.12.8"], "new": ["0.12.0.1", "0.12.12", "0.12.8"]}


def test_each_pair_has_a_cell_and_each_problem_a_line():
    """The saving stack is the row."""
    saved = {"old": Answers(2, {}), "new": Answers(1, {"b": "ValueError: no disk"})}
    restored = {
        ("old", "old"): Answers(2, {}),
        ("old", "new"): Answers(1, {"b": "state: 3 of 4 leaves failed\n    w differs"}),
        ("new", "old"): Answers(1, {}),
        ("new", "new"): Answers(1, {}),
    }
    table = exchange.render(STACKS, saved, restored)
    assert "the same cases and each restore all of them: 2 cases" in table and "All stacks have Orbax 0.12.8" in table
    assert "| saved by ↓, restored by → | jax 0.10.2, flax 0.12.8 | jax 0.12.0.1, flax 0.12.12 |" in table
    assert "| jax 0.10.2, flax 0.12.8: 2 saved | all 2 | 1 of 2 |" in table
    assert "| jax 0.12.0.1, flax 0.12.12: 1 saved | all 1 | all 1 |" in table
    assert table.splitlines()[-2:] == [
        "- jax 0.12.0.1, flax 0.12.12 did not save b: ValueError: no disk",
        "- b, saved by jax 0.10.2, flax 0.12.8, restored by jax 0.12.0.1, flax 0.12.12: state: 3 of 4 leaves failed",
    ]


def test_the_rest_of_the_page_can_be_made_anew(tmp_path):
    """The section is kept; a page without one, or none, has an empty one."""
    page = tmp_path / "page.md"
    assert exchange.kept(page) == "<!-- checkpoints --><!-- /checkpoints -->"
    page.write_text("# Head\n<!-- checkpoints -->\na table\n<!-- /checkpoints -->\n", encoding="utf-8")
    assert exchange.kept(page) == "<!-- checkpoints -->\na table\n<!-- /checkpoints -->"
