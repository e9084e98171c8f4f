"""Interleaved 1F1B: each stage has V chunks of layers, far apart, and the bubble is 1/V as long, for V times the hops.

    parameters       layers→stage
    gradients        layers→stage
    optimizer state  layers→stage
    batch            whole
    forward moves    collective-permute of activations over stage; all-reduce of metrics over stage
    step moves       collective-permute of activations over stage; all-reduce of gradients over stage;
                     all-reduce of metrics over stage

    stage 0  F0a F1a F2a F3a F0b F1b F2b F3b ·   ·   ·   B0b ·   B1b ·   B2b ·   B3b B0a B1a B2a B3a
    stage 1  ·   F0a F1a F2a F3a F0b F1b F2b ·   ·   B0b F3b B1b ·   B2b ·   B3b B0a B1a B2a B3a ·
    stage 2  ·   ·   F0a F1a F2a F3a F0b F1b ·   B0b F2b B1b F3b B2b ·   B3b B0a B1a B2a B3a ·   ·
    stage 3  ·   ·   ·   F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b B0a B1a B2a B3a ·   ·   ·

A microbatch passes the stages V times, through their first chunks (a), then their second (b); so the last stage sends
to the first. Filling the pipeline costs S − 1 ticks as before, but a tick is a chunk's: a stage is idle
(S − 1)/(V·M + S − 1) of the time. Microbatches go in groups of S (Narayanan et al. 2021, Megatron-LM).
"""

from __future__ import annotations

from dataclasses import replace

from reference_impl.strategies import pipeline_gpipe
from reference_impl.theory.schedules import Schedule, interleaved

CHUNKS = 2


def make_schedule(stages: int, microbatches: int) -> Schedule:
    """The schedule with two chunks a stage."""
    return interleaved(stages, microbatches, CHUNKS)


PAGE = replace(pipeline_gpipe.PAGE, name="pipeline_interleaved", make_schedule=make_schedule)
