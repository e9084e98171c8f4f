"""An annotated strategy that also evaluates, with the layout that it trains with."""

from __future__ import annotations

from functools import cached_property

from meshproof.contract import Batch
from reference_impl.evaluation import Evaluates, Totals, totals
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.base import OnMesh, TrainState


class EvaluatedForm(Evaluates, JaxForm):
    """The totals are those of one global batch: the compiler adds the devices' sums."""

    @cached_property
    def totals(self) -> OnMesh:
        """`evaluate` of a placed batch."""

        def evaluated(state: TrainState, batch: Batch) -> Totals:
            in_use = self.reshard(state.parameters, self.page.compute)
            return totals(self.network.apply(in_use, batch["x"], self.layout(self.page.compute)), batch)

        return self.compile(evaluated)
