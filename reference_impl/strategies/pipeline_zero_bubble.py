"""Zero bubble (ZB-H1): 1F1B that splits each backward in two, and fills its bubble with the half that can wait.

    parameters       layers→stage
    gradients        layers→stage
    optimizer state  layers→stage
    batch            whole
    forward moves    collective-permute of activations over stage; all-reduce of metrics over stage
    step moves       collective-permute of activations over stage; all-reduce of gradients over stage;
                     all-reduce of metrics over stage

    stage 0  F0 F1 F2 F3 ·  ·  ·  B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7
    stage 1  ·  F0 F1 F2 ·  ·  B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7
    stage 2  ·  ·  F0 F1 ·  B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 W7
    stage 3  ·  ·  ·  F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7

B computes the gradient of the activation, for which the stage before waits; W computes those of the weights, at any
later time. Stage s defers W until s further B are done, and is then busy until its end: with three slots for each
microbatch a stage is idle (S − 1)/(3M + S − 1) of the time, a third as long as in 1F1B. Every stage holds S activations
and the gradients that wait with them (Qi et al. 2023). In the steady state forwards and backwards share a tick, so
stages send twice in it. Here W recomputes what B has computed, as B recomputes F: memory for time.
"""

from __future__ import annotations

from dataclasses import replace

from reference_impl.strategies import pipeline_gpipe
from reference_impl.theory.schedules import zero_bubble

PAGE = replace(pipeline_gpipe.PAGE, name="pipeline_zero_bubble", make_schedule=zero_bubble)
