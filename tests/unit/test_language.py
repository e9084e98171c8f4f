"""Clauses are requirements that RFC 2119 reads as they are meant, in the field's own terms."""

import ast
import re
from pathlib import Path

import pytest

from meshproof.judging.spec import read_clauses

ROOT = Path(__file__).parents[2]
SPOKEN = ("suites", "meshproof/judging", "meshproof/measures", "meshproof/run")
"""The folders whose clauses, messages and docstrings a user reads when something fails."""

KEYWORD = re.compile(r"\b(?:MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b")
NOBODY = r"(?:nothing|none|nobody|never|neither|no)\b"
SUBJECT = re.compile(rf"(?!(?i:{NOBODY})|.*[,:;] {NOBODY}[^,:;]* MUST)[A-Z`].* MUST (?:NOT )?[a-z]")
SENTENCE_END = re.compile(r"[.!?]\)?\s+(?=[A-Z(])")
FOG = re.compile(
    r"\b(?:lies?|lay|laid|born|birth|anew|spared?|spares|unasked|hand(?:s|ed)? on|(?:declared|allowed) (?:is|are))\b"
)
"""Words for which the field has terms: sharded or placed, after init, recomputed, saved, implicit, sent, expected."""


def faults(statement):
    """What is wrong with a clause."""
    first, *conditions = SENTENCE_END.split(statement)
    if not SUBJECT.match(first):
        yield "does not begin with SUBJECT MUST [NOT] …; 'Nothing MUST' requires nothing"
    if len(KEYWORD.findall(first)) != 1:
        yield "does not have one MUST in its first sentence"
    if any(KEYWORD.search(condition) for condition in conditions):
        yield "requires something in a second sentence, which is a clause of its own"
    if fog := FOG.findall(statement):
        yield f"says {', '.join(fog)}"


def strings(path):
    """Every piece of text in a file, with its line: docstrings, messages, and the parts of f-strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("clause", read_clauses(ROOT), ids=lambda clause: clause.test.partition("::")[2])
def test_clauses_have_one_form(clause):
    """SUBJECT MUST [NOT] …: one requirement in one sentence, and after it conditions only."""
    assert list(faults(clause.statement)) == []


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("Nothing MUST move in the train step that its budget does not list.", "SUBJECT MUST"),
        ("No host transfer MUST happen inside the step.", "SUBJECT MUST"),
        ("In the step, nothing MUST move.", "SUBJECT MUST"),
        ("In the step. Nothing MUST move.", "one MUST"),
        ("MUST be sharded as declared.", "SUBJECT MUST"),
        ("Parameters are sharded as declared.", "one MUST"),
        ("Parameters MUST be sharded, and MUST NOT be whole.", "one MUST"),
        ("Parameters SHOULD be sharded.", "SUBJECT MUST"),
        ("Parameters MUST be sharded. They MUST NOT be whole.", "second sentence"),
        ("Parameters MUST be sharded. (Optimizer state SHOULD be.)", "second sentence"),
        ("Every parameter MUST lie as declared, from birth.", "says lie, birth"),
        ("A step MUST take less memory where blocks are computed anew.", "says anew"),
        ("A step MUST hold no more than is handed on.", "says handed on"),
    ],
)
def test_a_clause_of_another_form_is_noticed(statement, complaint):
    """What requires nothing, or two things, or says it in words that only this house uses."""
    assert re.search(complaint, "; ".join(faults(statement)))


@pytest.mark.parametrize(
    "statement",
    [
        "The train step MUST NOT move anything that its budget does not list.",
        "The share MUST equal (S − 1)/(V·M + S − 1). (M microbatches. If M < S: (2S − 1 − M)/(2S − 1 + 2M).)",
        "For each pair of blocks, one [B, D] activation MUST move (ratio 1.000).",
        "Over an axis that shards no parameter, every gradient byte MUST be reduced once.",
        "``check_vma`` MUST NOT change gradients.",
    ],
)
def test_a_clause_of_this_form_passes(statement):
    """Conditions may come before the subject, in brackets, or in sentences of their own."""
    assert list(faults(statement)) == []


def test_messages_use_the_terms_of_the_field():
    """Nothing that a failure shows says *lies* for sharded or *at birth* for after init."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {', '.join(words)}"
        for folder in SPOKEN
        for path in sorted((ROOT / folder).glob("*.py"))
        for line, text in strings(path)
        if (words := FOG.findall(text))
    ]
    assert found == []


@pytest.mark.parametrize("planted", ['f"{leaf} lies as {spec}"', '"state at birth"', '"expected 1, allowed is 2"'])
def test_fog_in_a_message_is_noticed(tmp_path, planted):
    """Also in a part of an f-string."""
    (tmp_path / "suite.py").write_text(f"message = {planted}\n", encoding="utf-8")
    assert any(FOG.search(text) for _, text in strings(tmp_path / "suite.py"))
