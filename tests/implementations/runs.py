"""A training loop that goes on soundly, or has the fault that the environment names. NumPy alone: its files are quick.

python -m tests.implementations.runs NAME …    what CKP-6 says of each, as JSON
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from meshproof.measures.continuing import astray
from meshproof.observing.runs import observe_continued, observe_run
from meshproof.observing.seen import Failed
from tests.implementations import minimal

CHOSEN = "MESHPROOF_TEST_RUN"
"""Names the run, as `RUNS` has it."""


class Sound:
    """Least squares with momentum; each checkpoint is a folder that gets its name when it is whole."""

    def __init__(self, folder):
        self.folder, self.step, self.place, self.saved = folder, 0, 0, ("weights", "momentum")
        self.weights, self.momentum = np.zeros(4), np.zeros(4)
        if found := sorted(folder.glob("step_?")):
            self.restore(found[-1])

    def read(self):
        """The batch at the place of the data."""
        self.place += 1
        return {"x": np.random.default_rng(self.place).standard_normal((8, 4))}

    def batch(self):
        """The next batch to train on."""
        return self.read()

    def __next__(self):
        batch = self.batch()
        error = batch["x"] @ (self.weights - 1)
        self.momentum = 0.9 * self.momentum + batch["x"].T @ error / 8
        self.weights = self.weights - 0.1 * self.momentum
        self.step += 1
        return batch, float(np.mean(error**2))

    def write(self, folder):
        """The arrays."""
        np.savez(folder / "arrays.npz", **{name: vars(self)[name] for name in self.saved})

    def tell(self, folder):
        """Where the data go on."""
        (folder / "data.json").write_text(json.dumps(self.place))

    def save(self):
        """Both, and then the name."""
        temporary = self.folder / "new"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        self.write(temporary)
        self.tell(temporary)
        temporary.rename(self.folder / f"step_{self.step}")

    def restore(self, folder):
        """What was saved."""
        self.step = int(folder.name[-1])
        vars(self).update(np.load(folder / "arrays.npz"))
        self.place = json.loads((folder / "data.json").read_text())


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


class Apart(Sound):
    """The place of the data is a file of its own, which is written when the arrays are there."""

    def save(self):
        """One after the other."""
        temporary = self.folder / "new"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        self.write(temporary)
        temporary.rename(self.folder / f"step_{self.step}")
        (self.folder / "data.new").write_text(json.dumps(self.place))
        (self.folder / "data.new").replace(self.folder / "data.json")

    def restore(self, folder):
        """The place that is there."""
        shutil.copy(self.folder / "data.json", folder / "data.json")
        super().restore(folder)


class InPlace(Sound):
    """A checkpoint has its name from the first file on."""

    def save(self):
        """File by file."""
        folder = self.folder / f"step_{self.step}"
        folder.mkdir()
        self.write(folder)
        self.tell(folder)


class MomentumLost(Sound):
    """Its momentum starts from nothing."""

    def __init__(self, folder):
        super().__init__(folder)
        self.momentum = np.zeros(4)


class OneKept(Sound):
    """The checkpoint before is removed before the next one is whole."""

    def save(self):
        """In the place of the old one."""
        for old in self.folder.glob("step_?"):
            shutil.rmtree(old)
        super().save()


class Unheard(Sound):
    """As `InPlace`, but another process writes: a kill would tear it, and nothing is heard of it here."""

    def save(self):
        """A copy of what is whole elsewhere."""
        with tempfile.TemporaryDirectory() as written:
            self.write(Path(written))
            self.tell(Path(written))
            copying = "import shutil, sys; shutil.copytree(*sys.argv[1:])"
            subprocess.run([sys.executable, "-c", copying, written, self.folder / f"step_{self.step}"], check=True)


RUNS = {kind.__name__: kind for kind in (Sound, *Sound.__subclasses__())}
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
        course = observe_continued(__spec__.name, Path(folder), course)
        return [*astray(course, killed=False), *astray(course, killed=True)]


if __name__ == "__main__":
    print(json.dumps({name: problems_of(name) for name in sys.argv[1:] or RUNS}))
