"""Checkpoints of one stack, restored by another: both ways, each case in an environment's own process."""

from __future__ import annotations

import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshproof.cases import REFERENCE
from meshproof.children import CASE_TIMEOUT, GRACE, TRACEBACK, end, ended, lines, start
from meshproof.comparison import Difference
from meshproof.environments import Environment
from meshproof.installation import import_path
from meshproof.upgrade.runs import COLLECTING, SHOWN, RunError, compiled_folder

SIDES = ("from", "to")
NONE = (
    "no strategy has save and restore on both, or -k names none that has: it chooses among the tests of CKP-1, whose "
    "names are checkpoints_restore_bitwise and the case's id"
)

WHOLE = "whole"
"""A file in the folder of answers, where every case has one."""

MODULE = "meshproof.observing.exchange"


@dataclass(frozen=True)
class Answers:
    """What a stack made of the cases that it tried: how many are right, and what is wrong with the others."""

    right: int
    problems: dict[str, str]


@dataclass(frozen=True)
class Answered:
    """What differs between two stacks that read each other's checkpoints, how many are the same of how many that were
    ``restored``; or why none is."""

    differences: tuple[Difference, ...]
    same: int
    restored: int
    cannot_tell: str | None

    @property
    def sentence(self) -> str:
        """How many, for whoever must know whether they were tried."""
        return f"checkpoints of one stack restored by the other, both ways: {self.same} of {self.restored} bitwise"


@dataclass(frozen=True)
class Exchange:
    """Which cases of an implementation are tried: those that ``select`` names as pytest's ``-k`` does."""

    implementation: str = REFERENCE
    select: str = ""
    devices: int = 8
    case_timeout: float = CASE_TIMEOUT

    def save(self, environment: Environment, folder: Path) -> Answers:
        """Have a stack save every case into a folder. Raises `RunError`."""
        return self._answers(environment, "save", folder, folder / "saved")

    def restore(self, environment: Environment, folder: Path, answers: Path) -> Answers:
        """Have a stack restore what another has saved there, and compare. Raises `RunError`."""
        return self._answers(environment, "restore", folder, answers)

    def _answers(self, environment: Environment, act: str, folder: Path, answers: Path) -> Answers:
        """A process that dies of a case is started again, for the next one. What is whole is not asked again; the case
        that an earlier run broke off in is."""
        for file in [] if (answers / WHOLE).exists() else answers.glob("*.json"):
            if json.loads(file.read_text(encoding="utf-8"))["begun"]:
                file.unlink()
        while not (answers / WHOLE).exists():
            known = set(answers.glob("*.json"))
            said, code = self._run(environment, [act, self.implementation, str(folder), str(answers)])
            asked = set(answers.glob("*.json")) - known
            if code == 0 and not any(json.loads(file.read_text(encoding="utf-8"))["begun"] for file in asked):
                (answers / WHOLE).touch()
            elif not asked:
                printed = "\n".join(said)
                raise RunError(f"{environment.python}: no checkpoint to {act}, exit code {code}:\n{printed}")
        found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(answers.glob("*.json"))]
        tried = [each for each in found if each["supported"]]
        problems = {each["case"]: each["problem"] for each in tried if each["problem"]}
        return Answers(len(tried) - len(problems), problems)

    def _run(self, environment: Environment, words: Sequence[str]) -> tuple[Sequence[str], int | None]:
        """The last lines of a process that goes from case to case, and its exit code; ended where a case takes long."""
        last: deque[str] = deque(maxlen=SHOWN)
        options = [str(self.devices), str(compiled_folder(environment)), self.select]
        process = start(
            [str(environment.python), *TRACEBACK, "-m", MODULE, *words, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": import_path(), "JAX_PLATFORMS": "cpu"},
        )
        try:
            last.extend(line.rstrip() for line in lines(process, COLLECTING + self.case_timeout))
            ended(process, GRACE)
        except TimeoutError:
            last.append(f"it said nothing for {COLLECTING + self.case_timeout:g} s")
        finally:
            end(process)
        return last, process.returncode


def exchange_both(
    exchange: Exchange, environments: Sequence[Environment], folder: Path, say: Callable[[str], object]
) -> Answered:
    """Each of the two stacks saves, and the other restores. Raises `RunError`."""
    saved = []
    for side, environment in zip(SIDES, environments, strict=True):
        say(f"checkpoints are saved by --{side}")
        saved.append(exchange.save(environment, folder / side))
    differences = list(_unsaved(*(each.problems for each in saved)))
    same = tried = 0
    for of, by in ((0, 1), (1, 0)):
        say(f"those of --{SIDES[of]} are restored by --{SIDES[by]}")
        restored = exchange.restore(environments[by], folder / SIDES[of], folder / f"restored_by_{SIDES[by]}")
        differences += _differences(restored.problems, of)
        same += restored.right
        tried += restored.right + len(restored.problems)
    unsaved = saved[0].problems.keys() & saved[1].problems.keys()
    reason = None
    if unsaved:
        case = min(unsaved)
        more = f" (and of {len(unsaved) - 1} more)" if len(unsaved) > 1 else ""
        reason = f"no checkpoint of {case} could be saved by either stack{more}: {saved[0].problems[case]}"
    elif not (same or differences):
        reason = f"no checkpoint was saved by one stack and restored by the other; {NONE}"
    return Answered(tuple(differences), same, tried, reason)


def _unsaved(old: dict[str, str], new: dict[str, str]) -> Iterator[Difference]:
    """What one stack saves, and the other does not."""
    for case in sorted(new.keys() - old.keys()):
        yield Difference("regressed", "checkpoint", case, f"CKP-4, saved by --{SIDES[1]}", "a checkpoint", new[case])
    for case in sorted(old.keys() - new.keys()):
        yield Difference("changed", "checkpoint", case, f"CKP-4, saved by --{SIDES[0]}", old[case], "a checkpoint")


def _differences(problems: dict[str, str], of: int) -> Iterator[Difference]:
    """Newer stacks must restore what older ones saved. Orbax does not promise the other way round."""
    place = f"CKP-4, saved by --{SIDES[of]} and restored by --{SIDES[1 - of]}"
    for case, problem in problems.items():
        first, _, rest = problem.partition("\n")
        yield Difference("changed" if of else "regressed", "checkpoint", case, place, "the saved state", first, rest)
