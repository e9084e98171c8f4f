"""From a data set to the devices: each process reads the rows that its own devices hold, and no others.

                one process      several
rows read       all              those of its devices, by the batch's sharding
place saved     the step         the same on each: any number of processes goes on from it
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Sharding

from meshproof.contract import Batch
from reference_impl.forms.base import Form
from reference_impl.lifecycle.training_data import Shuffled


class Feed:
    """The batches of a data set on the mesh of a strategy, one after the other. ``data`` has their place; ``last`` are
    the host's rows of the last one.

    Raises ``ValueError`` where Grain is missing, and where the devices of a process do not hold one block of rows.
    """

    def __init__(self, form: Form, data: Shuffled) -> None:
        try:
            from reference_impl.lifecycle.data_loading import ShuffledBatches
        except ModuleNotFoundError as missing:
            if missing.name != "grain":
                raise
            raise ValueError("training reads its data with Grain: pip install 'meshproof[data]'") from missing
        self.form, self.shardings = form, {}
        reader, self.readers = 0, 1
        if jax.process_count() > 1:
            self.shardings = form.on_mesh(form.batch_specs)
            reader, self.readers = block(self.shardings["x"], data.fields["x"][: data.batch_size].shape)
        self.last: Batch = {}
        self.data = ShuffledBatches(data, reader, self.readers)

    def next(self) -> dict[str, jax.Array]:
        """The next global batch."""
        rows = self.last = next(self.data)
        if not self.shardings:
            return self.form.shard_batch(rows)
        whole = {name: (len(field) * self.readers, *field.shape[1:]) for name, field in rows.items()}
        return {
            name: jax.make_array_from_process_local_data(self.shardings[name], field, whole[name])
            for name, field in rows.items()
        }


def block(sharding: Sharding, shape: tuple[int, ...]) -> tuple[int, int]:
    """Which of how many equal blocks of rows the devices of this process hold, of a global array of this shape.

    Raises ``ValueError`` where they hold no such block: a mesh that has devices of other processes between them.
    """
    held: Any = sharding.addressable_devices_indices_map(shape).values()
    spans = {rows.indices(shape[0])[:2] for rows, *_ in held}
    begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
    rows = end - begin
    if sum(stop - start for start, stop in spans) != rows or begin % rows or shape[0] % rows:
        raise ValueError(
            f"the devices of process {jax.process_index()} hold rows {sorted(spans)} of {shape[0]}: expected one block "
            f"without gaps; order the mesh so that a process's devices are beside each other"
        )
    return begin // rows, shape[0] // rows
