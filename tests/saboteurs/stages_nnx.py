"""A fault in a pipeline of NNX modules."""

from __future__ import annotations

from typing import Any

from reference_impl.forms.pipelined import NnxPipelined
from reference_impl.models.stacked_mlp_nnx import NnxStackedMLP
from reference_impl.strategies import pipeline_gpipe
from tests.saboteurs.pipelines import STAGES
from tests.saboteurs.planting import plant


class BareHead(NnxStackedMLP):
    """A head that takes the last pair's output as it is."""

    def leave(self, parameters: Any, x_BxE: Any, layout: Any) -> Any:
        """Without a ReLU before it."""
        return self.module("head", parameters["head"])(x_BxE)


plant("healthy_nnx_stages", NnxPipelined, pipeline_gpipe.PAGE, STAGES)
plant("nnx_head_without_relu", NnxPipelined, pipeline_gpipe.PAGE, STAGES, "NUM-2", "NUM-4", network=BareHead())
