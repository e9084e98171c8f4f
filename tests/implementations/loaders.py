"""A trainer whose data iterator is sound, or has the fault that the environment names."""

import os
import time

import numpy as np

from tests.implementations import minimal

CHOSEN = "MESHPROOF_TEST_LOADER"
"""Names the loader, as `LOADERS` has it."""

EXAMPLES, BATCH, SEED = 26, 4, 1
"""Two examples are left over where an epoch is cut into batches."""


class Sound:
    """Process p takes the examples p, p + n, … of each global batch; an order runs on from epoch to epoch."""

    examples = EXAMPLES

    def __init__(self, process, processes):
        self.process, self.processes, self.step, self.seed = process, processes, 0, SEED

    def place(self, position):
        """The example at a place in the order of all epochs."""
        epoch, place = divmod(position, EXAMPLES)
        return np.random.default_rng((self.seed, epoch)).permutation(EXAMPLES)[place]

    def positions(self):
        """Those of this process in the next global batch."""
        return range(self.step * BATCH + self.process, (self.step + 1) * BATCH, self.processes)

    def __next__(self):
        """Rows of one number."""
        batch = {"x": np.array([[self.place(position)] for position in self.positions()], np.int32)}
        self.step += 1
        return batch

    def get_state(self):
        """The global step, which is every process's own too."""
        return {"step": self.step}

    def set_state(self, state):
        """Continue there."""
        self.step = state["step"]


class EndsWithTheEpoch(Sound):
    """Padded at its end; a padded row is no example, so that it must say what a batch holds."""

    def positions(self):
        """None after the epoch."""
        if self.step * BATCH >= EXAMPLES:
            raise StopIteration
        return super().positions()

    def place(self, position):
        """-1 is padding."""
        return super().place(position) if position < EXAMPLES else -1

    def ids(self, batch):
        """What is not padding."""
        return batch["x"][batch["x"] >= 0]


class Refuses(Sound):
    """No other number of processes can continue, and the state is no copy."""

    def __init__(self, process, processes):
        super().__init__(process, processes)
        self.state = {"step": 0, "processes": processes}

    def __next__(self):
        """Written to what is kept."""
        batch = super().__next__()
        self.state["step"] = self.step
        return batch

    def get_state(self):
        """What is kept."""
        return self.state

    def set_state(self, state):
        """Refuse the state of another number."""
        if state["processes"] != self.processes:
            raise ValueError(f"the state is of {state['processes']} processes, these are {self.processes}")
        super().set_state(state)
        self.state = state


class Restarted(Sound):
    """A restore that is forgotten."""

    def set_state(self, state):
        """Start again."""


class OneShard(Sound):
    """Every process takes itself for the first."""

    def positions(self):
        """Those of process 0."""
        return range(self.step * BATCH, (self.step + 1) * BATCH, self.processes)


class OtherSeed(Sound):
    """A restart with another seed."""

    def set_state(self, state):
        """At the right place of another order."""
        super().set_state(state)
        self.seed += 1


class TailDropped(Sound):
    """Whole batches of an epoch, and the next epoch."""

    def place(self, position):
        """As if an epoch had 24 examples."""
        epoch, place = divmod(position, EXAMPLES // BATCH * BATCH)
        return super().place(epoch * EXAMPLES + place)


class TailTwice(Sound):
    """The last batch of an epoch is filled from its head."""

    def place(self, position):
        """As if an epoch had 28 examples."""
        epoch, place = divmod(position, -(-EXAMPLES // BATCH) * BATCH)
        return super().place(epoch * EXAMPLES + place % EXAMPLES)


class EndsBeforeTheTail(EndsWithTheEpoch):
    """One epoch without its tail."""

    def positions(self):
        """Whole batches alone."""
        if (self.step + 1) * BATCH > EXAMPLES:
            raise StopIteration
        return super().positions()


class BufferLost(Sound):
    """Examples are shuffled in a buffer of thirteen, which no state has: after a restore it is filled from here on."""

    start = 0

    def place(self, position):
        """Thirteens, from where this iterator started."""
        filled, place = divmod(position - self.start, 13)
        return (self.start + filled * 13 + (place * 5 + 3) % 13) % EXAMPLES

    def set_state(self, state):
        """A new buffer."""
        super().set_state(state)
        self.start = self.step * BATCH


class HashedSeed(Sound):
    """A seed that each Python process draws for itself."""

    def __init__(self, process, processes):
        super().__init__(process, processes)
        self.seed = hash("epoch order") % 2**32


class LocalOrder(Sound):
    """Each process goes through a part of its own, and takes any state."""

    def place(self, position):
        """Part p of n, in order."""
        batch, place = divmod(position, BATCH)
        share = BATCH // self.processes
        part = self.examples // self.processes
        return self.process * part + (batch * share + place // self.processes) % part

    examples = 28


class OneEndsEarly(EndsWithTheEpoch):
    """The last process has fewer batches."""

    def positions(self):
        """It ends one before the others."""
        if self.process == self.processes - 1 > 0 and self.step == 3:
            raise StopIteration
        return super().positions()


class OtherBytes(Sound):
    """Noise is added to what is read, and drawn anew after a restore."""

    noise = 0

    def __next__(self):
        """The same examples, each time different."""
        self.noise += 1
        return super().__next__() | {"noise": np.full(BATCH // self.processes, self.noise)}

    def ids(self, batch):
        """Without the noise."""
        return batch["x"][:, 0]


class Hangs(Sound):
    """A file system that does not answer."""

    def __next__(self):
        """Wait."""
        time.sleep(10_000)


LOADERS = {kind.__name__: kind for kind in (Sound, *Sound.__subclasses__(), *EndsWithTheEpoch.__subclasses__())}


def data_iterator(process, processes):
    """The chosen one."""
    return LOADERS[os.environ[CHOSEN]](process, processes)


strategies = minimal.strategies
