"""A comparison as a terminal table, Markdown and JUnit XML."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshproof.comparison.differences import SIGNS, Comparison, Difference
from meshproof.report.document import describe_stack

SHOWN = 60
"""The most lines of a table; JSON and page have them all."""

UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold."""

MARKUP = re.compile(r"[&<>@|\\`*~#!\[\]]")
"""Characters that Markdown interprets."""

Group = Sequence[Difference]


def write_table(comparison: Comparison, write: Callable[[str], object]) -> None:
    """Write both stacks, a line per group of differences, the reasons not to tell, and the verdict."""
    write(f"old: {describe_stack(comparison.old)}")
    write(f"new: {describe_stack(comparison.new)}")
    groups = comparison.groups()
    if groups:
        table = Table("", "what", "where", "old", "new", "cases", box=None, pad_edge=False, header_style="bold")
        table.columns[2].overflow = "fold"
        for group in groups[:SHOWN]:
            first = group[0]
            what = f"{first.change} {first.kind}"
            table.add_row(*map(Text, (SIGNS[first.change], what, first.place, first.old, first.new, cases(group))))
        console = Console(width=None if sys.stdout.isatty() else 200)
        with console.capture() as capture:
            console.print(table)
        write(capture.get().rstrip())
    if len(groups) > SHOWN:
        write(f"and {len(groups) - SHOWN} lines more, less serious than these; the JSON has them all")
    for difference in comparison.differences:
        if difference.change == "regressed" and difference.detail:
            write(f"\n{difference.place} of {difference.case or 'the stack'}:\n{difference.detail}")
            break
    for reason in comparison.cannot_tell:
        write(f"cannot tell: {reason}")
    if comparison.exchanged:
        write(comparison.exchanged)
    write(comparison.sentence)


def cases(group: Group) -> str:
    """The first case of a group, and how many more."""
    named = [difference.case for difference in group if difference.case]
    if not named:
        return ""
    return named[0] + (f" and {len(named) - 1} more" if len(named) > 1 else "")


def markdown(comparison: Comparison) -> str:
    """A comment for a pull request: the verdict, both stacks, and a folded table per class of difference."""
    lines = [f"### {escape(comparison.sentence)}", ""]
    lines += [f"- cannot tell: {escape(reason)}" for reason in comparison.cannot_tell]
    lines += [f"- {escape(comparison.exchanged)}"] if comparison.exchanged else []
    lines += ["", "| | stack |", "|---|---|"]
    for which, stack in (("old", comparison.old), ("new", comparison.new)):
        lines.append(f"| {which} | {escape(describe_stack(stack))} |")
    for change, chosen in groupby(comparison.groups(), lambda group: group[0].change):
        groups = list(chosen)
        opened = " open" if change == "regressed" else ""
        lines += [
            "",
            f"<details{opened}><summary>{SIGNS[change]} {change}: {comparison.counts[change]:,}</summary>",
            "",
        ]
        lines += ["| what | where | old | new | cases |", "|---|---|---|---|---|"]
        for group in groups[:SHOWN]:
            words = (group[0].kind, group[0].place, group[0].old, group[0].new, cases(group))
            lines.append(f"| {' | '.join(map(escape, words))} |")
        if len(groups) > SHOWN:
            lines.append(f"| | and {len(groups) - SHOWN} lines more | | | |")
        lines += ["", "</details>"]
    return "\n".join([*lines, ""])


def junit(comparison: Comparison, fail_on: Sequence[str]) -> str:
    """A test case per difference, failed if its class is in ``fail_on``, and an error per reason not to tell."""
    suite = ElementTree.Element("testsuite", name="meshproof compare")
    failures = 0
    for difference in comparison.differences:
        name = f"{difference.kind}: {difference.place} [{difference.case or 'stack'}]"
        test = ElementTree.SubElement(suite, "testcase", classname=difference.kind, name=_xml(name))
        said = f"{difference.change}: {difference.old} → {difference.new}"
        if difference.change in fail_on:
            failures += 1
            ElementTree.SubElement(test, "failure", message=_xml(said)).text = _xml(difference.detail)
        else:
            ElementTree.SubElement(test, "system-out").text = _xml(said)
    for reason in comparison.cannot_tell:
        test = ElementTree.SubElement(suite, "testcase", classname="comparison", name="it can be told")
        ElementTree.SubElement(test, "error", message=_xml(reason))
    verdict = ElementTree.SubElement(suite, "testcase", classname="comparison", name=_xml(comparison.sentence))
    ElementTree.SubElement(verdict, "system-out").text = f"{comparison.same} facts are the same"
    counts = {"tests": len(suite), "failures": failures, "errors": len(comparison.cannot_tell), "skipped": 0}
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def escape(text: str) -> str:
    """Text from a report, escaped so that Markdown sees neither markup nor a mention in it."""
    return MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", " ".join(text.split()))


def _xml(text: str) -> str:
    return UNPRINTABLE.sub("�", text)
