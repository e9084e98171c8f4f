"""Faults of a transformer in pipeline stages: in its tied table, in its positions, and in its last norm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import axis_index, axis_size, psum

from reference_impl.forms.pipeline import Pipeline
from reference_impl.forms.pipelined import NnxPipelined
from reference_impl.models.layout import Layout
from reference_impl.models.scanned_gpt import ScannedGPT
from reference_impl.models.scanned_gpt_nnx import NnxScannedGPT
from reference_impl.shards import sum_of_own
from reference_impl.strategies import pipeline_gpipe
from tests.saboteurs.pipelines import STAGES, UncheckedPipelined
from tests.saboteurs.planting import plant
from tests.saboteurs.transformers import of_gpt

SLIM = {"vocab": 32, "embed": 16, "head_dim": 2, "mlp": 64}


class PositionsEverywhere(ScannedGPT):
    """Positions that every stage adds to what it is sent."""

    def enter(self, parameters: Any, x: Any, layout: Layout) -> Any:
        """Tokens alone."""
        return layout.look_up(parameters["token_embedding"]["embedding"], x)

    def through(self, parameters: Any, h: Any, layout: Layout, step: Any = 0) -> Any:
        """As if each stage were the first."""
        return super().through(parameters, h + parameters["position_embedding"]["embedding"], layout, step)


class BareHead(NnxScannedGPT):
    """A head that takes the last block's output as it is."""

    def leave(self, parameters: Any, h: Any, layout: Layout) -> Any:
        """Without a norm before it."""
        return self.module("token_embedding", parameters["token_embedding"]).attend(h)


def summing(both_ends: bool = True) -> Any:
    """GPipe's loss and gradients; the tied table's of both stages that use it, or of the last alone."""

    def loss_and_gradients(model: Any, schedule: Any, parameters: Any, batch: Any) -> Any:
        value, gradients = Pipeline(model, schedule, Layout()).run(parameters, batch)
        if not both_ends:
            is_last = axis_index("stage") == axis_size("stage") - 1
            of_head = jax.tree.map(lambda leaf: jnp.where(is_last, leaf, 0), gradients["token_embedding"])
            gradients = {**gradients, "token_embedding": of_head}
        return psum(value, "stage"), sum_of_own(gradients, model, pipeline_gpipe.TABLE.compute, ("stage",))

    return {"loss_and_gradients": loss_and_gradients}


form = of_gpt(UncheckedPipelined, ScannedGPT(**SLIM))
plant("healthy_gpt_stages", form, pipeline_gpipe.PAGE, STAGES, **summing())
plant("table_taught_by_the_head", form, pipeline_gpipe.PAGE, STAGES, "NUM-2", "NUM-4", **summing(both_ends=False))
form = of_gpt(UncheckedPipelined, PositionsEverywhere(**SLIM))
plant("positions_on_every_stage", form, pipeline_gpipe.PAGE, STAGES, "NUM-2", "NUM-4")
form = of_gpt(NnxPipelined, BareHead(**SLIM))
plant("nnx_head_without_norm", form, pipeline_gpipe.PAGE, STAGES, "NUM-2", "NUM-4")
