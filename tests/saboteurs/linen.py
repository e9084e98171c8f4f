"""Faults of Flax Linen's annotations, none of which raises anything."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
from flax import linen as nn

from reference_impl.forms.linen_form import LinenForm, boxed_parameters, rules
from reference_impl.mapping import Mapping
from reference_impl.strategies import fsdp
from tests.saboteurs.planting import DATA, plant


class UnboxesFirst(LinenForm):
    """The boxes come off before anybody has read what they say."""

    @cached_property
    def state_specs(self) -> Any:
        """Everything whole."""
        born = jax.eval_shape(
            lambda key: self.create(nn.unbox(boxed_parameters(self, self.module, key))), jax.random.key(0)
        )
        return nn.logical_to_mesh(nn.get_partition_spec(born))


class MisspellsRule(LinenForm):
    """A rule for a logical axis that no parameter has; Linen leaves an axis without a rule whole."""

    @cached_property
    def state_specs(self) -> Any:
        """``embedding`` for ``embed``."""
        born = jax.eval_shape(lambda key: self.create(boxed_parameters(self, self.module, key)), jax.random.key(0))
        return nn.logical_to_mesh(nn.get_partition_spec(born), rules(Mapping(embedding="data")))


plant("healthy_linen_fsdp", LinenForm, fsdp.PAGE, DATA)
plant("linen_unboxed_first", UnboxesFirst, fsdp.PAGE, DATA, "SHD-1", "SHD-6", "MEM-1")
plant("linen_rule_misspelt", MisspellsRule, fsdp.PAGE, DATA, "SHD-1", "SHD-6", "MEM-1")
