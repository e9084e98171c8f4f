"""What an observing process is started with."""

import os
import re
import subprocess
import sys

import jax
import pytest

from meshproof.cases import Case, load_cases
from meshproof.observing.process import QUICK_CODE
from meshproof.observing.serving import WholeFile, drop_programs, observed

COMPILE = """
import jax
from meshproof.cases import load_cases
from meshproof.hlo import census
from meshproof.measures.memory import program_memory
[case] = [case for case in load_cases("reference_impl") if case.id == "fsdp-jax-mlp@data=8"]
state, batch = case.strategy.init(jax.random.key(0)), case.strategy.shard_batch(*case.strategy.batches(1))
compiled = case.strategy.train_step.lower(state, batch).compile()
print(*census(compiled.as_text(), case.mesh), program_memory(compiled), sep="\\n")
"""


def compiled(*flags):
    """What a train step communicates, its memory for arguments, outputs and aliases, and its temporary memory."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": " ".join(flags)}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    *collectives, memory = run.stdout.splitlines()
    *fixed, temporary = re.findall(r"=(\d+)", memory)
    return collectives, fixed, int(temporary)


def test_quick_code_is_of_the_same_program():
    """What is compiled quickly communicates and keeps what XLA's usual program does; temporary memory is within 1 %."""
    *quick, quick_memory = compiled(*QUICK_CODE)
    *usual, usual_memory = compiled()
    assert len(quick[0]) >= 3 and len(quick[1]) == 3
    assert quick == usual
    assert quick_memory == pytest.approx(usual_memory, rel=0.01)


def test_programs_are_dropped_before_memory_maps_run_out(tmp_path):
    """Compiled programs are forgotten once the process has more memory maps than allowed, and not before."""
    maps = tmp_path / "maps"
    maps.write_text("one\ntwo\nthree\n", encoding="utf-8")
    double = jax.jit(lambda x: 2 * x)
    double(1.0)
    drop_programs(maps, most=3)
    assert double._cache_size() == 1
    drop_programs(maps, most=2)
    assert double._cache_size() == 0


def test_an_entry_of_the_compilation_cache_is_written_whole(tmp_path):
    """JAX joins paths from the one that it is given, and writes and reads bytes: what it wrote is there, alone."""
    entry = WholeFile(tmp_path) / "jit_step-cache"
    entry.write_bytes(b"compiled")
    assert entry.read_bytes() == b"compiled"
    assert [path.name for path in tmp_path.iterdir()] == ["jit_step-cache"]


def test_a_mesh_of_other_axes_is_refused():
    """Where ``mesh_axes`` are not those of ``mesh``, no fact could be charged to an axis."""
    strategy = next(case.strategy for case in load_cases("reference_impl") if case.id == "data_parallel-jax-mlp@data=8")
    seen = observed(Case("odd", strategy, {"data": 2, "model": 4}, "cpu"))
    assert "mesh_axes is {'data': 2, 'model': 4}, but mesh has the axes {'data': 8}" in seen.reason
