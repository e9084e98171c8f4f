"""Ways of saving that are not the book's: three healthy ones, a file that is taken for optional, a rate that is
not the one that was saved, and a save that nobody waits for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import jax
import numpy as np
import optax
from orbax.checkpoint import StandardCheckpointer
from orbax.checkpoint import v1 as ocp

from reference_impl.forms.annotated import JaxForm
from reference_impl.lifecycle import checkpointing
from reference_impl.strategies import data_parallel, fsdp
from tests.healthy.stored import Saves
from tests.saboteurs.planting import DATA, plant, plant_stranger


class OptionalMomentum(JaxForm):
    """Arrays in three files by hand; the moments are taken from theirs if it is there."""

    PARTS, save_async = ("parameters", "optimizer"), None

    def save(self, state: Any, folder: Path) -> None:
        """The name first, as a person would look for it."""
        folder.mkdir()
        (folder / "name").write_text(self.name)
        for part in self.PARTS:
            np.savez(folder / part, *jax.tree.leaves(getattr(state, part)))

    def restore(self, folder: Path) -> Any:
        """As ``init`` makes it, but for what is found."""
        state = self.init(jax.random.key(0))
        for part in self.PARTS:
            file = folder / f"{part}.npz"
            if part == "parameters" or file.exists():
                leaves, tree = jax.tree.flatten(getattr(state, part))
                sharded = [leaf.sharding for leaf in leaves]
                found = [jax.device_put(*pair) for pair in zip(np.load(file).values(), sharded, strict=True)]
                state = state._replace(**{part: jax.tree.unflatten(tree, found)})
        return state


class Listed(JaxForm):
    """A healthy one that keeps what it saves in lists, by Orbax."""

    save_async = None

    def save(self, state: Any, folder: Path) -> None:
        """Pairs."""
        leaves = jax.tree.leaves(state)
        ocp.save(folder, {"state": [list(pair) for pair in zip(leaves[::2], leaves[1::2], strict=True)]})

    def restore(self, folder: Path) -> Any:
        """Placed as they were."""
        leaves, tree = jax.tree.flatten(self.abstract_state())
        pairs = [list(pair) for pair in zip(leaves[::2], leaves[1::2], strict=True)]
        return jax.tree.unflatten(tree, jax.tree.leaves(ocp.load(folder, {"state": pairs})))


class OlderOrbax(JaxForm):
    """A healthy one by the interface that NNX's own guide uses."""

    save_async = None

    def save(self, state: Any, folder: Path) -> None:
        """Of a tree of dicts."""
        with StandardCheckpointer() as checkpointer:
            checkpointer.save(folder, checkpointing.by_path(state))

    def restore(self, folder: Path) -> Any:
        """Placed as they were."""
        abstract = self.abstract_state()
        with StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(folder, checkpointing.by_path(abstract))
        return jax.tree.unflatten(
            jax.tree.structure(abstract), [found[path] for path in checkpointing.by_path(abstract)]
        )


class MergedByOlderOrbax(OlderOrbax):
    """What that has read is merged into an initial state, where what is missing keeps its value."""

    def restore(self, folder: Path) -> Any:
        """Nothing is said."""
        abstract, initial = self.abstract_state(), checkpointing.by_path(self.init(jax.random.key(0)))
        with StandardCheckpointer() as checkpointer:
            found = initial | checkpointer.restore(folder)
        placed = {path: jax.device_put(found[path], leaf.sharding) for path, leaf in initial.items()}
        return jax.tree.unflatten(jax.tree.structure(abstract), list(placed.values()))


class SavesItsRate(Saves):
    """A healthy one whose rate is in the state, where a schedule outside of the step sets it."""

    name = "healthy_saves_its_rate"
    optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=1e-2)

    def optimizer_state(self, state: Any) -> Any:
        """Adam's."""
        adam = state["optimizer"].inner_state[0]
        return {"count": adam.count, "mu": adam.mu, "nu": adam.nu}


class TakesItsRateAnew(SavesItsRate):
    """The rate is saved, and taken from ``init``: nothing shows it until a schedule has set another."""

    name, save_async = "takes_its_rate_anew", None

    def restore(self, folder: Path) -> Any:
        """But for the rate."""
        state, fresh = super().restore(folder), self.init(jax.random.key(0))
        rate = fresh["optimizer"].hyperparams
        return state | {"optimizer": state["optimizer"]._replace(hyperparams=rate)}


class SavesLater(Saves):
    """What it saves is on disk a while after it has returned."""

    name, save_async = "saves_later", None

    def save(self, state: Any, folder: Path) -> None:
        """From a copy, in a thread that nobody waits for."""
        kept = jax.tree.map(jax.numpy.copy, state)
        Timer(1.0, ocp.save, (folder, kept)).start()


plant("optional_momentum", partial(OptionalMomentum, variant="files"), fsdp.PAGE, DATA, "CKP-3")
plant("healthy_in_lists", partial(Listed, variant="lists"), fsdp.PAGE, DATA)
plant("healthy_by_older_orbax", partial(OlderOrbax, variant="older"), fsdp.PAGE, DATA)
plant("merged_by_older_orbax", partial(MergedByOlderOrbax, variant="merged"), data_parallel.PAGE, DATA, "CKP-5")
plant_stranger(SavesItsRate())
plant_stranger(TakesItsRateAnew(), "CKP-1")
plant_stranger(SavesLater(), "CKP-1")
