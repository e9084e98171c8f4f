"""Training loops whose saves a kill tears apart, or that return before all is on disk."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from copy import copy
from pathlib import Path
from threading import Thread

import numpy as np

from tests.implementations.sound_run import Sound


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


class PlaceFirst(Apart):
    """The place is written before the arrays are there."""

    def save(self):
        """One after the other."""
        (self.folder / "data.new").write_text(json.dumps(self.place))
        (self.folder / "data.new").replace(self.folder / "data.json")
        Sound.save(self)


class NotAwaited(Sound):
    """Another thread writes it, and gives it its name when the next steps have been trained."""

    def save(self):
        """Begun."""
        Thread(target=self.finish, args=(self.step, copy(self))).start()

    def finish(self, step, state):
        """Whole, after a while."""
        temporary = self.folder / f"new_{step}"
        temporary.mkdir()
        state.write(temporary)
        state.tell(temporary)
        time.sleep(0.2)
        with suppress(FileNotFoundError):  # by then nobody may train there any more
            temporary.rename(self.folder / f"step_{step}")


class InPlace(Sound):
    """A checkpoint has its name from the first file on."""

    def save(self):
        """File by file."""
        folder = self.folder / f"step_{self.step}"
        folder.mkdir()
        self.write(folder)
        self.tell(folder)


class OneKept(Sound):
    """The checkpoint before is removed before the next one is whole."""

    def save(self):
        """In the place of the old one."""
        for old in self.folder.glob("step_*"):
            shutil.rmtree(old)
        super().save()


class OneFile(Sound):
    """The checkpoint is one file, and written over."""

    def __init__(self, folder):
        self.path = folder / "step_0"
        super().__init__(folder)

    def save(self):
        """In place."""
        with self.path.open("wb") as file:
            np.savez(file, step=self.step, place=self.place, weights=self.weights, momentum=self.momentum)

    def restore(self, folder):
        """What was saved."""
        vars(self).update(np.load(folder))
        self.step, self.place = int(self.step), int(self.place)


class StepFirst(OneFile):
    """The step and the place are in a file that is replaced before that of the state is."""

    def save(self):
        """Each whole."""
        (self.path.parent / "new").write_text(json.dumps([self.step, self.place]))
        (self.path.parent / "new").replace(self.path.parent / "told")
        with (self.path.parent / "arrays").open("wb") as file:
            np.savez(file, weights=self.weights, momentum=self.momentum)
        (self.path.parent / "arrays").replace(self.path)

    def restore(self, folder):
        """What was saved."""
        vars(self).update(np.load(folder))
        self.step, self.place = json.loads((folder.parent / "told").read_text())


class Mapped(OneFile):
    """The file is mapped into memory, and each number written in its place."""

    def save(self):
        """The step last."""
        kept = np.memmap(self.path, float, "r+" if self.path.exists() else "w+", shape=10)
        kept[:] = [*self.weights, *self.momentum, self.place, self.step]
        kept.flush()

    def restore(self, folder):
        """What was saved."""
        kept = np.fromfile(folder)
        self.weights, self.momentum, (self.place, self.step) = kept[:4], kept[4:8], kept[8:].astype(int).tolist()


class MadeElsewhere(Sound):
    """The old ones are removed before the new one comes from another folder."""

    def save(self):
        """Renamed from there."""
        for old in self.folder.glob("step_*"):
            shutil.rmtree(old)
        temporary = Path(tempfile.mkdtemp(dir=self.folder.parent.parent))
        self.write(temporary)
        self.tell(temporary)
        temporary.rename(self.folder / f"step_{self.step}")


class Unheard(Sound):
    """As `InPlace`, but another process writes: a kill would tear it, and nothing is heard of it here."""

    def save(self):
        """A copy of what is whole elsewhere."""
        with tempfile.TemporaryDirectory() as written:
            self.write(Path(written))
            self.tell(Path(written))
            copying = "import shutil, sys; shutil.copytree(*sys.argv[1:])"
            subprocess.run([sys.executable, "-c", copying, written, self.folder / f"step_{self.step}"], check=True)
