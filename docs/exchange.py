"""``python -m docs.exchange``: which stack restores the checkpoints of which, written into docs/compatibility.md.

Each stack of constraints/ saves the cases of `SELECT`, and each restores what each has saved. What was answered is kept
in ``--answers``, so that a run which broke off can go on; stacks that are named are tried alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from packaging.version import Version

from docs.stacks import pinned
from meshproof.environments import Environment, make_environment
from meshproof.files import insert, replace_text
from meshproof.upgrade.checkpoints import Answers, Exchange

PAGE = Path("docs/compatibility.md")
MARK = "checkpoints"
SELECT = "mlp and (fsdp or pmap) and not explicit and not accumulated and not masked"
"""Of each framework, momentum and Adam, float32 and bfloat16, annotated and by hand, one axis and two, and pmap."""

HEAD = """\
## Which stack restores whose checkpoints?

`python -m docs.exchange` has each stack save the same cases and each restore all of them: {count} cases, of plain JAX, NNX and Linen. A checkpoint is restored if each number is bitwise the saved one and each leaf is sharded as `init` shards it (CKP-4). All stacks have Orbax {orbax}, the oldest with which the book saves being 0.12. `meshproof upgrade --from … --to … --checkpoints` tries two stacks, with any trainer.
"""  # noqa: E501 - a paragraph of Markdown is one line

PACKAGES = ("jax", "flax", "orbax-checkpoint")


def exchange_all(names: Sequence[str], folder: Path) -> str:
    """The section of these stacks of constraints/, from the oldest on."""
    say = partial(print, file=sys.stderr, flush=True)
    environments = {name: make_environment(pinned(Path("constraints") / f"{name}.txt"), say) for name in names}
    order = sorted(environments, key=lambda name: [Version(each) for each in versions(environments[name])])
    exchange = Exchange(select=SELECT)
    saved, restored = {}, {}
    for name in order:
        say(f"{name} saves")
        saved[name] = exchange.save(environments[name], folder / name)
    for writer in order:
        for reader in order:
            say(f"{reader} restores what {writer} has saved")
            answers = folder / f"{writer}_restored_by_{reader}"
            restored[writer, reader] = exchange.restore(environments[reader], folder / writer, answers)
    return render({name: versions(environments[name]) for name in order}, saved, restored)


def versions(environment: Environment) -> list[str]:
    """Those of `PACKAGES` in an environment."""
    found = dict(each.split("==") for each in environment.packages if each.count("==") == 1)
    return [found[name] for name in PACKAGES]


def render(stacks: dict[str, list[str]], saved: dict[str, Answers], restored: dict[tuple[str, str], Answers]) -> str:
    """A row for each stack that saved, a column for each that restored, and what went wrong."""
    orbax = ", ".join(dict.fromkeys(each[2] for each in stacks.values()))
    named = {name: f"jax {jax}, flax {flax}" for name, (jax, flax, _) in stacks.items()}
    lines = [HEAD.format(count=max(each.right for each in saved.values()), orbax=orbax)]
    lines += [f"| saved by ↓, restored by → | {' | '.join(named.values())} |", f"|---|{'---|' * len(named)}"]
    for writer, words in named.items():
        cells = [counted(restored[writer, reader]) for reader in named]
        lines.append(f"| {words}: {saved[writer].right} saved | {' | '.join(cells)} |")
    told = [
        f"- {named[name]} did not save {case}: {why}" for name in named for case, why in saved[name].problems.items()
    ]
    told += [
        f"- {case}, saved by {named[writer]}, restored by {named[reader]}: {why.splitlines()[0]}"
        for (writer, reader), answers in restored.items()
        for case, why in answers.problems.items()
    ]
    return "\n".join([*lines, *(["", *told] if told else [])])


def counted(answers: Answers) -> str:
    """How many of those that were tried are the same."""
    tried = answers.right + len(answers.problems)
    return f"all {tried}" if answers.right == tried else f"{answers.right} of {tried}"


def kept(page: Path = PAGE) -> str:
    """The section as the page has it, for whoever makes the rest of the page anew."""
    begin, end = f"<!-- {MARK} -->", f"<!-- /{MARK} -->"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return begin + text.partition(begin)[2].partition(end)[0] + end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.exchange", description=__doc__)
    parser.add_argument("--answers", type=Path, default=Path("build/exchange"), help="where answers are kept")
    parser.add_argument("stacks", nargs="*", help="names of files in constraints/; by default all")
    given = parser.parse_args()
    names = given.stacks or [file.stem for file in Path("constraints").glob("*.txt")]
    table = exchange_all(names, given.answers.absolute())
    replace_text(PAGE, insert(PAGE.read_text(encoding="utf-8"), MARK, table))
