"""Faults of checkpoints: what is not saved, not restored, or restored to where it was not."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from orbax.checkpoint import v1 as ocp

from reference_impl.forms.annotated import JaxForm
from reference_impl.lifecycle import checkpointing
from reference_impl.strategies import data_parallel, fsdp
from reference_impl.truth import Adam
from tests.saboteurs.planting import DATA, plant


class MomentumNotRestored(JaxForm):
    """A restart with a new optimizer."""

    def restore(self, folder: Path) -> Any:
        """Zeros, placed as the moments were."""
        state = super().restore(folder)
        return state._replace(optimizer=jax.tree.map(jnp.zeros_like, state.optimizer))


class CounterNotSaved(JaxForm):
    """A checkpoint of arrays: a number of steps is none."""

    def save(self, state: Any, folder: Path) -> None:
        """Every counter at its start."""
        count = lambda leaf: leaf if leaf.ndim else jnp.zeros_like(leaf)  # noqa: E731
        super().save(jax.tree.map(count, state), folder)


class MergedIntoInit(JaxForm):
    """Whatever has the name of a leaf of the initial state replaces it."""

    def restore(self, folder: Path) -> Any:
        """No leaf is missed."""
        start = checkpointing.by_path(self.init(jax.random.key(0)))
        saved = ocp.load(folder)
        merged = [jax.device_put(saved.get(path, leaf), leaf.sharding) for path, leaf in start.items()]
        return jax.tree.unflatten(jax.tree.structure(self.abstract_state()), merged)


class NameLost(MergedIntoInit):
    """One leaf has another name on disk, and so keeps its initial value."""

    def save(self, state: Any, folder: Path) -> None:
        """As after a layer was renamed."""
        renamed = {
            path.replace("parameters/dense_0", "parameters/in"): leaf
            for path, leaf in checkpointing.by_path(state).items()
        }
        ocp.save(folder, renamed)


class RestoredWhole(JaxForm):
    """A restore that knows no sharding."""

    def restore(self, folder: Path) -> Any:
        """Every device has everything."""
        return jax.device_put(super().restore(folder), self.on_mesh(PartitionSpec()))


class SavedThroughOneDevice(JaxForm):
    """What is saved is put together first, as a person would who has always had one device."""

    def save(self, state: Any, folder: Path) -> None:
        """All of it, on the first."""
        super().save(jax.device_put(state, jax.devices()[0]), folder)


class RestoredThroughOneDevice(JaxForm):
    """What is restored is read whole, and split then."""

    def restore(self, folder: Path) -> Any:
        """All of it, on the first."""
        state, first = self.abstract_state(), jax.sharding.SingleDeviceSharding(jax.devices()[0])
        whole = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=first), state)
        restored = checkpointing.restore(whole, folder)
        return jax.tree.map(lambda array, leaf: jax.device_put(array, leaf.sharding), restored, state)


class SaysNoLeaf(JaxForm):
    """An error that says that something is wrong."""

    def restore(self, folder: Path) -> Any:
        """And not what."""
        try:
            return super().restore(folder)
        except checkpointing.CheckpointError as error:
            raise ValueError("the checkpoint does not fit") from error


class StartsAfresh(JaxForm):
    """A run that starts from its initial values where a checkpoint cannot be read."""

    def restore(self, folder: Path) -> Any:
        """As if there were none."""
        try:
            return super().restore(folder)
        except Exception:
            return self.init(jax.random.key(0))


class PadsWhatWasCut(JaxForm):
    """A file of a leaf's bytes for each leaf, and no word of how many there are: nobody else reads it."""

    save_async = None  # type: ignore[assignment]

    def save(self, state: Any, folder: Path) -> None:
        """In the order of the tree."""
        folder.mkdir()
        for number, leaf in enumerate(jax.tree.leaves(state)):
            (folder / str(number)).write_bytes(np.asarray(leaf).tobytes())

    def restore(self, folder: Path) -> Any:
        """With zeros where a file ends too early."""
        leaves, tree = jax.tree.flatten(self.abstract_state())
        read = []
        for number, leaf in enumerate(leaves):
            raw = (folder / str(number)).read_bytes().ljust(leaf.size * leaf.dtype.itemsize, b"\0")
            read.append(jax.device_put(np.frombuffer(raw, leaf.dtype).reshape(leaf.shape), leaf.sharding))
        return jax.tree.unflatten(tree, read)


class FileOfEachShard(JaxForm):
    """A file of each distinct shard, and zeros where one is gone: where nothing is sharded, that is an error."""

    save_async = None  # type: ignore[assignment]

    def save(self, state: Any, folder: Path) -> None:
        """Under the number of the leaf, and the shard's place in it."""
        folder.mkdir()
        for number, leaf in enumerate(jax.tree.leaves(state)):
            for shard in leaf.addressable_shards:
                place = (part.indices(size)[:2] for part, size in zip(shard.index, leaf.shape, strict=True))
                name = "_".join(f"{start}-{stop}" for start, stop in place)
                np.save(folder / f"{number}@{name}.npy", np.asarray(shard.data))

    def restore(self, folder: Path) -> Any:
        """Of whatever files there are, at least one of each leaf."""
        leaves, tree = jax.tree.flatten(self.abstract_state())
        read = []
        for number, leaf in enumerate(leaves):
            whole, files = np.zeros(leaf.shape, leaf.dtype), [*folder.glob(f"{number}@*.npy")]
            if not files:
                raise FileNotFoundError(f"{folder} has no file of leaf {number}")
            for file in files:
                parts = filter(None, file.stem.partition("@")[2].split("_"))
                whole[tuple(slice(*map(int, part.split("-"))) for part in parts)] = np.load(file)
            read.append(jax.device_put(whole, leaf.sharding))
        return jax.tree.unflatten(tree, read)


class NotAwaited(JaxForm):
    """A save in the background that nobody waits for."""

    def save_async(self, state: Any, folder: Path) -> Any:
        """One that says that it is done."""
        saving = super().save_async(state, folder)
        saving.result = lambda: None  # type: ignore[method-assign]
        return saving


class SwallowsTheError(JaxForm):
    """A save in the background whose error is printed, and nothing more."""

    def save_async(self, state: Any, folder: Path) -> Any:
        """One that waits, and goes on."""
        saving = super().save_async(state, folder)
        wait = saving.result

        def result() -> None:
            try:
                wait()
            except checkpointing.CheckpointError as error:
                print(f"warning: {error}", file=sys.stderr, flush=True)

        saving.result = result  # type: ignore[method-assign]
        return saving


class ReadsWhenAwaited(JaxForm):
    """A thread that reads the arrays of the state when it comes to them."""

    def save_async(self, state: Any, folder: Path) -> Any:
        """The next step has donated them by then."""
        return SimpleNamespace(result=lambda: self.save(state, folder))


class NoMomentumInTheBackground(JaxForm):
    """Only what is copied at once is saved in the background."""

    def save_async(self, state: Any, folder: Path) -> Any:
        """The moments are too large for that."""
        return super().save_async(state._replace(optimizer=jax.tree.map(jnp.zeros_like, state.optimizer)), folder)


class KeepsSavedLayout(JaxForm):
    """A restore that trusts the layout in the checkpoint."""

    def restore(self, folder: Path) -> Any:
        """On the mesh that saved it."""
        return jax.tree.unflatten(jax.tree.structure(self.abstract_state()), saved_elsewhere(self, folder)[0])


class JoinsTheWrongAxis(JaxForm):
    """Shards of another mesh are put together again, as its columns were this one's rows."""

    def restore(self, folder: Path) -> Any:
        """Every element is there."""
        state, (_, elsewhere) = super().restore(folder), saved_elsewhere(self, folder)
        join = lambda leaf: jax.device_put(np.asarray(leaf).T.reshape(leaf.shape), leaf.sharding)  # noqa: E731
        return jax.tree.map(join, state) if elsewhere else state


class MomentumStaysBehind(JaxForm):
    """The optimizer starts anew where the mesh is another one."""

    def restore(self, folder: Path) -> Any:
        """As where each device has written its own moments, and is not there any more."""
        state, (_, elsewhere) = super().restore(folder), saved_elsewhere(self, folder)
        return state._replace(optimizer=jax.tree.map(jnp.zeros_like, state.optimizer)) if elsewhere else state


def saved_elsewhere(form: JaxForm, folder: Path) -> tuple[list[jax.Array], bool]:
    """The leaves as they were saved, and whether that was in another layout than the form's."""
    expected, saved = checkpointing.by_path(form.abstract_state()), ocp.load(folder)
    leaves = [saved[path] for path in expected]
    same = [
        leaf.sharding.is_equivalent_to(own.sharding, leaf.ndim)
        for leaf, own in zip(leaves, expected.values(), strict=True)
    ]
    return leaves, not all(same)


plant("momentum_not_restored", MomentumNotRestored, fsdp.PAGE, DATA, "CKP-1")
plant("counter_not_saved", lambda page, axes, _: CounterNotSaved(page, axes, Adam()), fsdp.PAGE, DATA, "CKP-1")
plant("leaf_keeps_its_initial_value", NameLost, fsdp.PAGE, DATA, "CKP-1")
plant("merged_into_init", MergedIntoInit, data_parallel.PAGE, DATA, "CKP-5")
plant("restored_whole", RestoredWhole, fsdp.PAGE, DATA, "CKP-1")
plant("saved_through_one_device", SavedThroughOneDevice, fsdp.PAGE, DATA, "CKP-1")
plant("restored_through_one_device", RestoredThroughOneDevice, fsdp.PAGE, DATA, "CKP-1")
plant("says_no_leaf", SaysNoLeaf, data_parallel.PAGE, DATA, "CKP-5")
plant("starts_afresh", StartsAfresh, fsdp.PAGE, DATA, "CKP-3")
plant("pads_what_was_cut", partial(PadsWhatWasCut, variant="bytes"), fsdp.PAGE, DATA, "CKP-3")
shard_files = partial(FileOfEachShard, variant="shards")
plant("healthy_shard_files", shard_files, data_parallel.PAGE, DATA)
plant("missing_shards_are_zeros", shard_files, fsdp.PAGE, DATA, "CKP-3")
plant("save_not_awaited", NotAwaited, fsdp.PAGE, DATA, "CKP-5")
plant("swallows_the_error", SwallowsTheError, fsdp.PAGE, DATA, "CKP-5")
plant("reads_when_awaited", ReadsWhenAwaited, fsdp.PAGE, DATA, "CKP-5")
plant("no_momentum_in_the_background", NoMomentumInTheBackground, fsdp.PAGE, DATA, "CKP-5")
plant("keeps_saved_layout", KeepsSavedLayout, fsdp.PAGE, DATA, "CKP-2")
plant("joins_the_wrong_axis", JoinsTheWrongAxis, fsdp.PAGE, DATA, "CKP-2")
plant("momentum_stays_behind", MomentumStaysBehind, fsdp.PAGE, DATA, "CKP-2")
