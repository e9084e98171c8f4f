"""A book whose proposals do otherwise than planned, one fault a strategy; each says the same in its own contract.

So its budgets equal the census, and its layouts are as declared: only a plan tells that they are wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from meshproof.contract import Proposal
from reference_impl import proposals
from reference_impl.forms.base import Form
from reference_impl.mapping import Mapping
from reference_impl.models.scanned_gpt import ScannedGPT


@dataclass(frozen=True)
class WholeTable(ScannedGPT):
    """A GPT whose table of tokens has a width of its own, which no strategy splits."""

    @property
    def axes(self) -> dict[str, Any]:
        """The tree with logical axes at its leaves."""
        return super().axes | {"token_embedding": {"embedding": ("vocab", "table_width")}}

    @property
    def shapes(self) -> dict[str, Any]:
        """The tree with shapes at its leaves."""
        plain = ScannedGPT(**vars(self))
        return plain.shapes


def table_whole(proposal: Proposal) -> Form:
    """FSDP that keeps the table of tokens whole on every device, and all-reduces its gradient."""
    form = proposals.proposed(replace(proposal, recomputes=True, precision="float32"))
    recomputed: Any = form.network
    return replace(form, network=replace(recomputed, model=WholeTable(**vars(recomputed.model))))


def moments_whole(proposal: Proposal) -> Form:
    """ZeRO-1 that keeps all moments on every device: data parallelism."""
    form = proposals.proposed(proposal)
    return replace(form, page=replace(form.page, optimizer=Mapping()))


def gathered_twice(proposal: Proposal) -> Form:
    """FSDP that recomputes, and so gathers again, where nothing was to be recomputed."""
    return proposals.proposed(replace(proposal, recomputes=True))


PLANTED: dict[str, Callable[[Proposal], Form]] = {
    "HSDP": table_whole,
    "ZeRO-1": moments_whole,
    "FSDP": gathered_twice,
}


def proposed(proposal: Proposal) -> Form:
    """The strategy with its fault, or as the book has it where none is planted."""
    return PLANTED.get(proposal.strategy, proposals.proposed)(proposal)
