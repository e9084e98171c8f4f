"""Checkpoints that another stack reads: a process of one stack that saves them, or that restores what another saved.

    python -m meshproof.observing.exchange save|restore IMPLEMENTATION CHECKPOINTS ANSWERS DEVICES COMPILED SELECT

Each case has an `Answer` in a file of the folder ANSWERS. It is written before the case is tried, so that it is there
where the process dies of it; started again, the process goes on with the cases that have none.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

import jax
from _pytest.mark.expression import Expression

from meshproof.cases import Case, has_member, load_cases
from meshproof.contract import Leaves
from meshproof.files import replace_pickle, replace_text
from meshproof.measures.numerics import bitwise
from meshproof.observing.members import origin, told
from meshproof.observing.process import QUICK_CODE
from meshproof.observing.resharding import MEMBERS, abstract
from meshproof.observing.serving import drop_programs, keep_whole_entries
from meshproof.observing.state import layout_of, moved, values_of
from meshproof.observing.subject import Subject
from meshproof.run.compile_cache import open_cache

Act = Literal["save", "restore"]
NAMES = ("the saved state", "the restored state")

OWN = "state"
"""What comes before the paths of a state's own leaves, as in ``state['step']``."""


@dataclass(frozen=True)
class Answer:
    """What became of one case: ``problem`` is none where all is right, ``supported`` false where nothing was tried.

    ``begun`` says that it is tried now, or that the process ended meanwhile.
    """

    case: str
    supported: bool
    problem: str | None
    begun: bool = False


def main(
    act: Act, implementation: str, checkpoints: Path, answers: Path, devices: int, compiled: Path, select: str
) -> None:
    """Save or restore each case that ``select`` names, as pytest's ``-k`` does, and print its name."""
    cache = open_cache(compiled, os.environ.get("XLA_FLAGS", ""))
    os.environ["XLA_FLAGS"] = " ".join([*QUICK_CODE, os.environ.get("XLA_FLAGS", "")]).strip()
    jax.config.update("jax_num_cpu_devices", devices)
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    keep_whole_entries()
    answers.mkdir(parents=True, exist_ok=True)
    selected = Expression.compile(select) if select else None
    for case in load_cases(implementation):
        file, folder = answers / f"{quote(case.id, safe='')}.json", checkpoints / quote(case.id, safe="")
        if file.exists() or (selected and not selected.evaluate(named_in(case))):
            continue
        write(file, Answer(case.id, True, f"the process that should {act} it ended, or did not answer in time", True))
        write(file, answer(case, folder, {"save": save, "restore": restore}[act]))
        print(case.id, flush=True)
        drop_programs()


def named_in(case: Case) -> Callable[..., bool]:
    """Whether a word of ``-k`` is part of the name of this case's test of CKP-1, in capitals or not."""
    return lambda word, **_: word.lower() in f"test_checkpoints_restore_bitwise[{case.id}]".lower()


def write(file: Path, answer: Answer) -> None:
    """The file of an answer, whole."""
    replace_text(file, json.dumps(asdict(answer)))


def answer(case: Case, folder: Path, act: Callable[[Subject, Path], str | None]) -> Answer:
    """What becomes of a case; not supported where it saves nothing, or nothing of it was saved."""
    if not all(has_member(case.strategy, member) for member in MEMBERS) or case.devices > jax.device_count():
        return Answer(case.id, False, None)
    if act is restore and not (folder / "state.pickle").exists():
        return Answer(case.id, False, None)
    try:
        with warnings.catch_warnings(), jax.default_matmul_precision("float32"):
            warnings.simplefilter("ignore")
            return Answer(case.id, True, act(Subject(case), folder))
    except Exception as error:
        return Answer(case.id, True, f"{told(error)} ({origin(error)})")


def save(subject: Subject, folder: Path) -> None:
    """The state after the usual steps, and beside the checkpoint its numbers, for the other stack."""
    state = subject.fresh()
    for batch in subject.batches:
        state, _ = subject.strategy.train_step(state, batch)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that broke off
    folder.mkdir(parents=True)
    subject.strategy.save(state, folder / "checkpoint")
    if not any(folder.iterdir()):
        raise FileNotFoundError(f"save left nothing at {folder}/checkpoint, expected the checkpoint there")
    replace_pickle(folder / "state.pickle", numbers(subject, state))


def restore(subject: Subject, folder: Path) -> str | None:
    """What differs in the restored state, from the saved one in numbers, and in layout from that after ``init``."""
    state = subject.strategy.restore(folder / "checkpoint")
    saved: Leaves = pickle.loads((folder / "state.pickle").read_bytes())
    restored = numbers(subject, state)
    named_otherwise = {path for path in saved.keys() ^ restored.keys() if path.startswith(OWN)}
    one, other = ({path: of[path] for path in of if path not in named_otherwise} for of in (saved, restored))
    verdict = bitwise(one, other, "state", NAMES)
    displaced = moved(layout_of(abstract(subject.strategy)), layout_of(state))
    return "\n".join([*([] if verdict.passed else [str(verdict)]), *displaced]) or None


def numbers(subject: Subject, state: Any) -> Leaves:
    """A state's numbers by path: those of its canonical trees, then all others, which a stack may name otherwise."""
    if not (subject.has("parameters") and subject.has("optimizer_state")):
        return values_of(state, ())
    parts = [part for part in ("parameters", "optimizer_state", "auxiliary") if subject.has(part)]
    trees = {part: subject.tree(part, state) for part in parts}  # type: ignore[arg-type]
    canonical = {f"{part}/{path}": value for part, tree in trees.items() for path, value in subject.host(tree).items()}
    told = {id(leaf) for tree in trees.values() for leaf in jax.tree.leaves(tree)}
    own = values_of(state, ())
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if id(leaf) in told:
            own.pop(jax.tree_util.keystr(path), None)
    return canonical | {f"{OWN}{path}": value for path, value in own.items()}


if __name__ == "__main__":
    act, module, saved, answered, count, kept, names = sys.argv[1:]
    main(cast(Act, act), module, Path(saved), Path(answered), int(count), Path(kept), names)
