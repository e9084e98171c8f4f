"""What is measured beside a time: caches, collectives, peaks and device times, each with its planted fault."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from benchmarks import host
from benchmarks.caches import HIT, MISS, CacheError, cache_events, check_cold, check_warm, persistent_cache
from benchmarks.collectives import OPERATIONS, CollectiveWindow
from benchmarks.peaks import PEAKS, utilisation
from benchmarks.program import compile_program
from benchmarks.window import WindowError, is_ready
from meshproof.observing.compilations import compilations_of


def compile_something(scale=7.0):
    """A small program, whose events are returned."""
    with compilations_of() as compiled, cache_events() as cached:
        jax.jit(lambda x: x * scale + 1).lower(jax.numpy.ones(3)).compile()
    return list(compiled), list(cached)


def test_cold_and_warm_are_told_apart(tmp_path):
    """What the persistent cache holds is warm and not cold; what it does not hold is cold and not warm."""
    with persistent_cache(None):
        jax.clear_caches()
        cold = compile_something()
    check_cold("case", *cold)
    with persistent_cache(tmp_path):
        jax.clear_caches()
        missed = compile_something()
        jax.clear_caches()
        warm = compile_something()
    assert MISS in missed[1] and HIT in warm[1]
    check_warm("case", *warm)
    with pytest.raises(CacheError, match="came from the persistent cache"):
        check_cold("case", *warm)
    for wrong in (cold, missed):
        with pytest.raises(CacheError, match="expected hits alone"):
            check_warm("case", *wrong)


def test_what_is_still_in_memory_is_neither():
    """A program that JAX still holds in memory is compiled neither cold nor warm."""
    function = jax.jit(lambda x: x - 3)
    given = jax.numpy.ones(3)
    function.lower(given).compile()
    with compilations_of() as compiled, cache_events() as cached:
        function.lower(given).compile()
    with pytest.raises(CacheError, match="still in memory"):
        check_cold("case", compiled, cached)
    with pytest.raises(CacheError, match="still in memory"):
        check_warm("case", compiled, cached)


def test_what_was_kept_has_no_compile_seconds(tmp_path):
    """A program from memory or from the persistent cache was not compiled: the time that this took is none of it."""
    case = SimpleNamespace(strategy=SimpleNamespace(loss=jax.jit(lambda x: jax.numpy.cos(x) * 5)))

    def seconds():
        return compile_program(case, "loss", jax.numpy.ones(3)).compile_seconds

    with persistent_cache(tmp_path):
        jax.clear_caches()
        assert seconds() > 0 and seconds() is None
        jax.clear_caches()
        assert seconds() is None
    with persistent_cache(None):
        jax.clear_caches()
        assert seconds() > 0


def test_cache_settings_are_put_back(tmp_path):
    """Settings of the persistent cache do not outlive their block."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    with persistent_cache(tmp_path):
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    assert before == (jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs)


@pytest.mark.parametrize("name", OPERATIONS)
def test_collectives_are_what_they_are_called(name):
    """Each program holds its collective once, on S bytes, and gives NumPy's result."""
    window = CollectiveWindow(name, 4096, jax.devices())
    assert window.facts["bytes_by_axis"] == {"device": 4096}
    window.run()
    window.check()


def test_a_program_without_its_collective_is_refused():
    """A program that does not communicate, or moves something else, is not timed."""
    idle = replace(OPERATIONS["all-reduce"], run=lambda x: x * 8)
    with pytest.raises(WindowError, match="the compiled program has no collective"):
        _ = CollectiveWindow("all-reduce", 4096, jax.devices(), idle).facts
    twice = replace(OPERATIONS["all-reduce"], run=lambda x: jax.lax.psum(jax.lax.psum(x, "device") / 8, "device"))
    with pytest.raises(WindowError, match=r"the compiled program has \[\('all-reduce', 2, 8192\)\]"):
        _ = CollectiveWindow("all-reduce", 4096, jax.devices(), twice).facts


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_wrong_result_is_refused(name):
    """A collective whose result is not NumPy's is not saved."""
    right = OPERATIONS[name]
    window = CollectiveWindow(name, 4096, jax.devices(), replace(right, run=lambda x: right.run(x) + 1))
    window.run()
    with pytest.raises(WindowError, match="does not give NumPy's result"):
        window.check()


def test_an_unblocked_collective_is_refused():
    """Results that are still on their way are not timed."""
    window = CollectiveWindow("all-reduce", 4096, jax.devices())
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: y @ y / 512, x))
    window.results = [slow(jax.numpy.ones((1024, 1024)))]
    with pytest.raises(WindowError, match="was not waited for"):
        window.check()


def test_a_collective_that_compiles_while_timed_is_refused():
    """A program that is compiled anew within the window is named, although its result is right."""
    window = CollectiveWindow("all-reduce", 4096, jax.devices())
    with compilations_of() as window.events:
        window.compiled = CollectiveWindow("all-reduce", 4096, jax.devices()).compiled
        window.run()
        with pytest.raises(WindowError, match=r"all-reduce of 4096 bytes compiled while it was timed: .*compile"):
            window.check()


def test_flops_of_a_gpu_are_unknown(monkeypatch):
    """On an H200 one program had 3.84 and 4.76 T of them, as its tuning went; elsewhere they are a fact."""
    case = SimpleNamespace(strategy=SimpleNamespace(loss=jax.jit(lambda x: x @ x)), mesh={"data": 1})
    program = compile_program(case, "loss", jax.numpy.ones((8, 8)))
    assert program.facts["flops"] > 0
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert program.facts["flops"] is None


def test_one_collective_for_eight_changes_a_fact():
    """Eight all-reduces move what one combined does, and are told apart; of a loop without an end they are unknown."""
    mesh = Mesh(np.asarray(jax.devices()), ("data",), axis_types=(AxisType.Auto,))

    def in_turn(values):
        total = 0.0
        for value in values:
            total = jax.lax.psum(value + 0 * total, "data")
        return total

    def until(values):
        return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: jax.lax.psum(x, "data"), values[0])

    def facts(run):
        mapped = jax.shard_map(run, mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False)
        case = SimpleNamespace(strategy=SimpleNamespace(loss=jax.jit(mapped)), mesh={"data": 8})
        return compile_program(case, "loss", [jax.numpy.ones(8)] * 8).facts

    one, eight = facts(lambda values: jax.lax.psum(values, "data")), facts(in_turn)
    assert one["collectives"] == eight["collectives"] == {"all-reduce over data": 8}
    assert one["bytes_by_axis"] == eight["bytes_by_axis"] == {"data": 32}
    assert (one["executions"], eight["executions"]) == ({"all-reduce over data": 1}, {"all-reduce over data": 8})
    assert facts(until)["executions"] == {"all-reduce over data": None}


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all-reduce", 1.75),
        ("all-gather", 0.875),
        ("reduce-scatter", 0.875),
        ("all-to-all", 0.875),
        ("collective-permute", 1.0),
    ],
)
def test_bandwidth_is_that_of_nccl_tests(name, factor):
    """On 8 devices busbw is algbw times the factor of nccl-tests' PERFORMANCE.md."""
    found = CollectiveWindow(name, 1000, jax.devices()).bandwidths(0.5)
    assert found == {"algbw_bytes_per_second": 2000.0, "busbw_bytes_per_second": 2000.0 * factor}


def test_utilisation_is_of_a_known_peak():
    """Half of the peak of all devices is 0.5; a device or dtype that is not known has none, and no guess."""
    assert utilisation(989e12, 0.5, 4, "NVIDIA H200", "bfloat16") == 0.5
    assert utilisation(989e12, 0.5, 4, "cpu", "float32") is None
    assert utilisation(None, 0.5, 4, "NVIDIA H200", "bfloat16") is None
    assert all(peak.flops > 1e13 and peak.source for peak in PEAKS.values())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("gpu|2|NVIDIA H200", host.Accelerators("gpu", 2, "NVIDIA H200")),
        ("a warning\ntpu|4|TPU v4\n", host.Accelerators("tpu", 4, "TPU v4")),
        ("cpu|8|cpu", host.NONE),
    ],
)
def test_accelerators_are_read(answer, expected):
    """What another process says of this host's devices is read; a CPU is no accelerator."""
    assert host.read(answer) == expected


def test_a_host_whose_jax_does_not_start_is_an_error(monkeypatch):
    """Where JAX could drive an accelerator and does not start, that is said; the CPU is not taken for it."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(host, "find_spec", lambda name: True)
    monkeypatch.setattr(host, "ASK", "raise SystemExit('no driver')")
    with pytest.raises(host.HostError, match="JAX does not start on this host: no driver"):
        host.accelerators.__wrapped__()


def test_numpy_knows_the_collectives():
    """Two devices with (0, 1) and (2, 3): the expected results, written out."""
    given = np.arange(4.0).reshape(2, 2)
    assert OPERATIONS["all-reduce"].expected(given).tolist() == [[2, 4], [2, 4]]
    assert OPERATIONS["all-gather"].expected(given).tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert OPERATIONS["reduce-scatter"].expected(given).tolist() == [[2], [4]]
    assert OPERATIONS["all-to-all"].expected(given).tolist() == [[0, 2], [1, 3]]
    assert OPERATIONS["collective-permute"].expected(given).tolist() == [[2, 3], [0, 1]]


def test_a_random_key_in_a_state_is_waited_for():
    """JAX does not say of a typed one whether it is ready."""
    state = jax.block_until_ready({"key": jax.random.key(0), "w": np.ones(3), "count": jax.numpy.zeros(())})
    assert all(map(is_ready, jax.tree.leaves(state)))
