"""1F1B: GPipe whose backwards come as soon as possible, so that a stage holds at most S activations, however large M.

    parameters       layers→stage
    gradients        layers→stage
    optimizer state  layers→stage
    batch            whole
    forward moves    collective-permute of activations over stage; all-reduce of metrics over stage
    step moves       collective-permute of activations over stage; all-reduce of gradients over stage;
                     all-reduce of metrics over stage

    stage 0  F0 F1 F2 F3 ·  ·  ·  B0 F4 B1 F5 B2 F6 B3 F7 B4 ·  B5 ·  B6 ·  B7
    stage 1  ·  F0 F1 F2 ·  ·  B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 ·  B6 ·  B7 ·
    stage 2  ·  ·  F0 F1 ·  B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 ·  B7 ·  ·
    stage 3  ·  ·  ·  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 ·  ·  ·

Warm-up, until the first microbatch comes back: stage s runs S − s forwards. Steady state: one backward frees one
activation for one forward, and neighbours take opposite turns. Cool-down: the backwards that are left. The bubble is
GPipe's; the memory it saves is spent on more microbatches (Narayanan et al. 2019, PipeDream-flush).
"""

from __future__ import annotations

from dataclasses import replace

from reference_impl.strategies import pipeline_gpipe
from reference_impl.theory.schedules import one_forward_one_backward

PAGE = replace(pipeline_gpipe.PAGE, name="pipeline_1f1b", make_schedule=one_forward_one_backward)
