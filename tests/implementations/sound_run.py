"""A training loop that goes on soundly. NumPy alone: its files are quick."""

import json
import shutil

import numpy as np


def step_of(folder):
    """The number in its name."""
    return int(folder.name.removeprefix("step_"))


class Sound:
    """Least squares with momentum; each checkpoint is a folder that gets its name when it is whole."""

    def __init__(self, folder):
        self.folder, self.step, self.place, self.saved = folder, 0, 0, ("weights", "momentum")
        self.weights, self.momentum = np.zeros(4), np.zeros(4)
        if found := sorted(folder.glob("step_*")):
            self.restore(self.last(found))

    def last(self, found):
        """The one of the latest step."""
        return max(found, key=step_of)

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
        self.step = step_of(folder)
        vars(self).update(np.load(folder / "arrays.npz"))
        self.place = json.loads((folder / "data.json").read_text())
