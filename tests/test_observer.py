"""What an observing process is started with."""

import os
import subprocess
import sys

from meshproof.observer import QUICK_CODE

COMPILE = """
import jax
from meshproof.cases import load_cases
from meshproof.memory import program_memory
[strategy] = [case.strategy for case in load_cases("reference_impl") if case.id == "fsdp-jax-mlp@data=8"]
state, batch = strategy.init(jax.random.key(0)), strategy.shard_batch(*strategy.batches(1))
compiled = strategy.train_step.lower(state, batch).compile()
print(compiled.as_text(), program_memory(compiled))
"""


def compiled(flag):
    """The text and the memory of a train step, compiled with one more XLA flag."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": flag}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    return run.stdout


def test_quick_code_is_of_the_same_program():
    """The compiled program and its memory, to the last letter, are those of XLA's usual level of machine code."""
    quick = compiled(QUICK_CODE)
    assert "reduce-scatter" in quick or "all-reduce" in quick
    assert quick == compiled(QUICK_CODE.replace("=0", "=3"))
