"""What is demanded of documents: a short README, links that lead somewhere, an index that lists all of them."""

import re

DOCUMENTS = ("*.md", "docs/**/*.md", "tests/README.md", "benchmarks/results/*.md")
INDEX = "docs/README.md"
LINES, BYTES = 150, 10_000
"""Of README.md, at most."""

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)#*$", re.MULTILINE)


def documents(root):
    """The documents of a checkout, by path."""
    return sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)})


def excess(text):
    """By how much a README is longer than it may be."""
    for found, most, unit in ((len(text.splitlines()), LINES, "lines"), (len(text.encode()), BYTES, "bytes")):
        if found > most:
            yield f"README.md has {found:,} {unit}, expected at most {most:,}: move to docs/ what can wait"


def links(path):
    """The links of a document that stay in the checkout, without those in code."""
    found = LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(path):
    """What a link into a document can name, as GitHub names headings."""
    seen = {}
    for heading in HEADING.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        words = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading)
        name = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        seen[name] = seen.get(name, -1) + 1
        yield f"{name}-{seen[name]}" if seen[name] else name


def dead_links(root):
    """The links that lead nowhere, with their document."""
    for document in documents(root):
        for link in links(document):
            name, _, anchor = link.partition("#")
            target = (document.parent / name).resolve() if name else document
            where = f"{document.relative_to(root).as_posix()}: ({link})"
            if not target.is_relative_to(root.resolve()) or not target.exists():
                yield f"{where} leads to no file"
            elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
                yield f"{where} leads to no heading of {target.relative_to(root.resolve()).as_posix()}"


def not_indexed(root):
    """The documents of ``docs/`` that the index does not link."""
    index = root / INDEX
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    for document in sorted(root.glob("docs/**/*.md")):
        if document != index and document.resolve() not in linked:
            yield f"{document.relative_to(root).as_posix()} is not linked in {INDEX}"


def options(text):
    """The options that the first column of a table of ``docs/options.md`` names."""
    return set(re.findall(r"^\| `(--[\w-]+)", text, re.MULTILINE))


def python_blocks(text):
    """The Python code that a document shows."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
