"""Expert parallel: every device keeps some of the experts and sees 1/N of the tokens, which travel to their experts.

    parameters       experts→expert
    gradients        experts→expert
    optimizer state  experts→expert
    batch            batch→expert
    forward moves    all-to-all of activations over expert; all-reduce of metrics over expert
    step moves       all-to-all of activations over expert; all-reduce of gradients over expert;
                     all-reduce of metrics over expert

Tokens and experts are split over one mesh axis, as in GShard and Switch. Forward there are two all-to-alls: dispatch
sends a device's tokens to their places at all experts, combine sends the experts' outputs back; backward there are
their transposes. An expert sees the tokens of every device, so its gradient is complete where it is computed. All
other parameters (input, router, head) are replicated, and their gradients all-reduced.
"""

from __future__ import annotations

from reference_impl.mapping import Mapping
from reference_impl.page import Budget, Page, all_reduce, all_to_all

PAGE = Page(
    name="expert_parallel",
    compute=Mapping(batch="expert", experts="expert"),
    parameters=Mapping(experts="expert"),
    gradients=Mapping(experts="expert"),
    optimizer=Mapping(experts="expert"),
    communication=Budget(
        forward=[all_to_all("activations", over="expert"), all_reduce("metrics", over="expert")],
        step=[
            all_to_all("activations", over="expert"),
            all_reduce("gradients", over="expert"),
            all_reduce("metrics", over="expert"),
        ],
    ),
)
