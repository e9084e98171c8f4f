"""Expert parallel and FSDP: tokens travel to their experts over one mesh axis, parameters are gathered over the rest.

    parameters       experts→expert, expert_embed→data, embed→data×expert
    gradients        experts→expert, expert_embed→data, embed→data×expert
    optimizer state  experts→expert, expert_embed→data, embed→data×expert
    batch            batch→data×expert
    forward moves    all-gather of parameters over data; all-gather of parameters over data×expert;
                     all-to-all of activations over expert; all-reduce of metrics over data×expert
    step moves       all-gather of parameters over data; all-gather of parameters over data×expert;
                     all-to-all of activations over expert; reduce-scatter of gradients over data;
                     reduce-scatter of gradients over data×expert; all-reduce of gradients over data×expert;
                     all-reduce of metrics over data×expert

Every device has tokens of its own, and the devices along ``expert`` have all experts between them, so that tokens never
move along ``data``. All parameters but the head's bias are sharded over all devices at rest. A device gathers its own
experts over ``data``, the others over both axes, and gradients are reduce-scattered over the same axes. The head's bias
is replicated, and its gradient all-reduced.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_gather, all_reduce, all_to_all, reduce_scatter

FORWARD = [
    all_gather("parameters", over="data"),
    all_gather("parameters", over=("data", "expert")),
    all_to_all("activations", over="expert"),
]
AT_REST = Mapping(experts="expert", expert_embed="data", embed=("data", "expert"))

PAGE = Page(
    name="expert_fsdp",
    compute=Mapping(batch=("data", "expert"), experts="expert"),
    parameters=AT_REST,
    gradients=AT_REST,
    optimizer=AT_REST,
    communication=Budget(
        forward=[*FORWARD, all_reduce("metrics", over=("data", "expert"))],
        step=[
            *FORWARD,
            reduce_scatter("gradients", over="data"),
            reduce_scatter("gradients", over=("data", "expert")),
            all_reduce("gradients", over=("data", "expert")),
            all_reduce("metrics", over=("data", "expert")),
        ],
    ),
)
