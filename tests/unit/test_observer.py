"""What an observing process is started with."""

import os
import re
import signal
import subprocess
import sys

import jax
import pytest

from meshproof.cases import Case, load_cases
from meshproof.observing.process import QUICK_CODE, Observer, Settings
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

KEEP = """
import resource, signal, sys
import jax
from meshproof.observing.serving import keep_whole_entries

if "whole" in sys.argv:
    keep_whole_entries()
if "killed" in sys.argv:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
jax.monitoring.register_event_listener(lambda event, **_: print(event))
jax.jit(lambda x: x @ x)(jax.numpy.ones((64, 64)))
"""
"""Compiles into the cache; ``killed`` by the system while it writes the 1001st byte of an entry."""


def compiled(*flags):
    """What a train step communicates, its memory for arguments, outputs and aliases, and its temporary memory."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": " ".join(flags)}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    *collectives, memory = run.stdout.splitlines()
    sizes = dict(re.findall(r"(\w+)=(\d+)", memory))
    return collectives, [sizes[name] for name in ("arguments", "outputs", "aliased")], int(sizes["temporary"])


def test_quick_code_is_of_the_same_program():
    """What is compiled quickly communicates and keeps what XLA's usual program does; temporary memory is within 1 %."""
    *quick, quick_memory = compiled(*QUICK_CODE)
    *usual, usual_memory = compiled()
    assert len(quick[0]) >= 3
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
    case = Case("odd", strategy, {"data": 2, "model": 4}, "cpu")
    seen = observed(case, [case])
    assert "mesh_axes is {'data': 2, 'model': 4}, but mesh has the axes {'data': 8}" in seen.reason


@pytest.fixture
def compile_into(tmp_path):
    """Runs `KEEP` in the settings of an observing process; what it says, and the entries it leaves."""

    def run(*how):
        variables = Settings("", 1, str(tmp_path)).environment("cpu")
        done = subprocess.run([sys.executable, "-c", KEEP, *how], env=variables, capture_output=True, text=True)
        assert done.returncode == (-signal.SIGXFSZ if "killed" in how else 0), done.stderr
        assert "compilation cache entry" not in done.stderr, done.stderr
        return done.stdout, [path.stat().st_size for path in tmp_path.glob("compiled/*-cache")]

    return run


def test_workers_share_the_memory_of_an_accelerator(monkeypatch):
    """None takes most of it at its start, unless the user wants that."""
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.delenv(name, raising=False)
    settings = Settings("", 1, "folder")
    assert settings.environment("native")[name] == "false" and name not in settings.environment("cpu")
    monkeypatch.setenv(name, "true")
    assert settings.environment("native")[name] == "true"


def test_entries_of_the_cache_are_found_again(compile_into):
    """Written whole, they are JAX's own."""
    said, entries = compile_into("whole")
    assert entries and "cache_misses" in said
    said, again = compile_into("whole")
    assert "cache_hits" in said and "cache_misses" not in said and again == entries
    assert "cache_hits" in compile_into()[0], "JAX without that finds them, too"


def test_who_is_killed_leaves_no_half_entry(compile_into):
    """JAX itself leaves one, which it never writes again."""
    assert compile_into("killed", "whole")[1] == []
    assert compile_into("killed")[1] == [1000]


def test_what_was_half_written_is_taken_away(tmp_path):
    """The other name of an entry, of the process that ended and of no other."""
    asks = Observer(Settings("tests.implementations.minimal", 1, str(tmp_path)), "cpu")
    asks.start()
    compiled = tmp_path / "compiled"
    compiled.mkdir(exist_ok=True)
    for pid in (asks.process.pid, 1):
        (compiled / f".jit_f-cache.{pid}.tmp").write_bytes(b"half")
    asks.close()
    assert [path.name for path in compiled.glob(".*.tmp")] == [".jit_f-cache.1.tmp"]
