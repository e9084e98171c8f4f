"""A training loop that goes on soundly, or has the fault that the environment names.

python -m tests.implementations.runs NAME …    what CKP-6 says of each, as JSON
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from meshproof.measures.continuing import astray
from meshproof.observing.runs import observe_continued, observe_run, observe_second_life
from meshproof.observing.seen import Failed
from tests.implementations import minimal
from tests.implementations.sound_run import Sound
from tests.implementations.torn_runs import Mapped, PlaceFirst, StepFirst

CHOSEN = "MESHPROOF_TEST_RUN"
"""Names the run, as `RUNS` has it."""


class Restarted(Sound):
    """Its data begin again."""

    def restore(self, folder):
        """The arrays alone."""
        super().restore(folder)
        self.place = 0


class Late(Sound):
    """The next batch is read while the devices compute, and the place is told after that."""

    ahead = None

    def batch(self):
        """What was read ahead; the one after it is next."""
        batch = self.ahead or self.read()
        self.ahead = self.read()
        return batch


class Twice(Sound):
    """The place is that before the batch which was trained on last."""

    def tell(self, folder):
        """One too early."""
        (folder / "data.json").write_text(json.dumps(self.place - 1))


class MomentumLost(Sound):
    """Its momentum starts from nothing."""

    def __init__(self, folder):
        super().__init__(folder)
        self.momentum = np.zeros(4)


class SortedAsText(Sound):
    """The last of the names that are sorted as texts is taken for the latest."""

    def last(self, found):
        """``step_9`` comes after ``step_11``."""
        return sorted(found)[-1]


class CountsAnew(Sound):
    """A run that goes on numbers its checkpoints from 0 again."""

    begun = 0

    def save(self):
        """Those of this process alone count."""
        step, self.step = self.step, self.step - self.begun
        shutil.rmtree(self.folder / f"step_{self.step}", ignore_errors=True)
        super().save()
        self.step = step

    def restore(self, folder):
        """The steps of earlier processes are known, but not told."""
        super().restore(folder)
        self.begun = self.step


class PlaceOnce(Sound):
    """The place of the data is told right by the first process only."""

    begun = 0

    def tell(self, folder):
        """Of a run that went on, that in its own data."""
        (folder / "data.json").write_text(json.dumps(self.place - self.begun))

    def restore(self, folder):
        """As it should be."""
        super().restore(folder)
        self.begun = self.place


class Ends(Sound):
    """It has data for eight steps."""

    def batch(self):
        """Until there are no more."""
        return next(iter([self.read()][self.step // 8 :]))


class EndsWithoutData(Ends):
    """As many loops by hand: a list of batches is at its end."""

    def batch(self):
        """By its place in the list."""
        return [self.read()][self.step // 8]


class Linked(Sound):
    """A link names the latest; it is replaced last."""

    def save(self):
        """The link is absolute."""
        super().save()
        link = self.folder / "new_link"
        link.symlink_to(self.folder / f"step_{self.step}")
        link.replace(self.folder / "latest")

    def last(self, found):
        """What the link names."""
        return (self.folder / "latest").readlink() if (self.folder / "latest").is_symlink() else super().last(found)


class Relinked(Linked):
    """Between two links there is none."""

    def save(self):
        """The old one is removed first."""
        Sound.save(self)
        (self.folder / "latest").unlink(missing_ok=True)
        (self.folder / "latest").symlink_to(f"step_{self.step}")

    def last(self, found):
        """What the link names, or nothing."""
        link = self.folder / "latest"
        return link.resolve() if link.is_symlink() else self.folder / "step_0"

    def restore(self, folder):
        """From the beginning, where there is nothing."""
        if folder.name != "step_0":
            super().restore(folder)


class Logged(Sound):
    """A sound one that writes beside its folder, too."""

    def save(self):
        """A line."""
        with Path(f"{self.folder}.log").open("a") as log:
            log.write(f"{self.step}\n")
        super().save()


RUNS = {
    kind.__name__: kind
    for kind in (Sound, *Sound.__subclasses__(), EndsWithoutData, Mapped, PlaceFirst, Relinked, StepFirst)
}
strategies = minimal.strategies


def training_run(folder):
    """The chosen one."""
    return RUNS[os.environ[CHOSEN]](folder)


def problems_of(name):
    """What CKP-6 says of a run, stopped and killed."""
    os.environ[CHOSEN] = name
    with tempfile.TemporaryDirectory() as folder:
        course = observe_run(__spec__.name, Path(folder))
        if isinstance(course, Failed):
            return [course.reason]
        course = observe_second_life(__spec__.name, Path(folder), course)
        course = observe_continued(__spec__.name, Path(folder), course)
        return [*astray(course, killed=False), *astray(course, killed=True)]


if __name__ == "__main__":
    print(json.dumps({name: problems_of(name) for name in sys.argv[1:] or RUNS}))
