"""What devices did in a window, by traces that were made up and the CPU's own; and what a benchmark must reach."""

from types import SimpleNamespace

import jax
import pytest

from benchmarks.conftest import pytest_terminal_summary
from benchmarks.device_time import activity, busiest
from benchmarks.floors import FloorError, Floors


def plane(name, *lines):
    """A plane of a trace: lines by name, of events by name, each with its start and duration in nanoseconds."""
    told = [
        (line, [SimpleNamespace(name=event, start_ns=start, duration_ns=length) for event, start, length in events])
        for line, events in lines
    ]
    return SimpleNamespace(name=name, lines=[SimpleNamespace(name=line, events=events) for line, events in told])


FIRST = plane(
    "/device:GPU:0",
    ("XLA Modules", [("jit_step", 0, 50)]),
    ("Stream #1(Compute)", [("fusion.1", 0, 10), ("gemm", 5, 10), ("fusion.2", 30, 5)]),
    ("Stream #2", [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 12, 8), ("all-gather-start.3", 36, 4)]),
)


def test_device_time_is_what_events_cover():
    """Overlapping events of one device count once; gaps, and what stands for a whole program, do not."""
    second = plane("/device:GPU:1", ("Stream #1", [("fusion", 0, 3)]))
    threads = plane("/host:CPU", ("python", [("step", 0, 1000)]))
    seen = busiest([threads, second, FIRST])
    assert seen.busy == pytest.approx(29e-9) and seen.whole == pytest.approx(40e-9)


def test_communication_and_idleness_are_told():
    """What moves, what of it no computation hides, and when a device does neither."""
    assert busiest([FIRST]).shares == {
        "communication": pytest.approx(12 / 40),
        "exposed_communication": pytest.approx(9 / 40),
        "idle": pytest.approx(11 / 40),
    }


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("all-reduce.1", True),
        ("%reduce-scatter-start", True),
        ("ragged-all-to-all.3", True),
        ("void ncclKernel_SendRecv", True),
        ("reduce.7", False),
        ("loop_all_reduce_fusion", False),
        ("gather", False),
    ],
)
def test_communication_is_known_by_its_name(name, moves):
    """XLA's operations, and NVIDIA's kernels."""
    shares = busiest([plane("/device:TPU:0", ("XLA Ops", [(name, 0, 1)]))]).shares
    assert shares["communication"] == moves


def test_a_trace_is_kept(tmp_path):
    """Where that is asked for, also of a CPU, which tells no shares."""
    kept = tmp_path / "traces" / "case"
    assert activity(lambda: jax.block_until_ready(jax.numpy.ones(3) + 1), kept) is None
    assert list(kept.rglob("*.xplane.pb"))


KNOWN = {"measured": {"mfu": 0.3, "exposed_communication": 0.2}, "identity": {"device_kind": "cpu", "dtype": "float32"}}


@pytest.mark.parametrize(
    ("floors", "message"),
    [
        (Floors(min_mfu=0.4), r"fsdp: expected an MFU of at least 40.0% \(--min-mfu\), saw 30.0%"),
        (Floors(max_communication=0.1), r"at most 10.0% of the time \(--max-communication\), saw 20.0%"),
    ],
)
def test_what_is_beyond_a_floor_fails(floors, message):
    """By the benchmark's name, with both numbers; what reaches it does not."""
    Floors(0.3, 0.2).judge("fsdp", KNOWN)
    Floors().judge("fsdp", KNOWN)
    with pytest.raises(FloorError, match=message):
        floors.judge("fsdp", KNOWN)


@pytest.mark.parametrize(
    ("floors", "message"),
    [
        (Floors(min_mfu=0.4), "not exercised: --min-mfu 0.4 of fsdp: no MFU is known of cpu in float32"),
        (Floors(max_communication=0.0), "not exercised: --max-communication 0 of fsdp: cpu tells no communication"),
    ],
)
def test_what_nobody_can_tell_is_not_exercised(floors, message):
    """No share is invented, and nothing passes."""
    with pytest.raises(pytest.skip.Exception, match=message):
        floors.judge("fsdp", KNOWN | {"measured": {"mfu": None, "exposed_communication": None}})


def test_what_was_not_exercised_is_said_at_the_end():
    """In one line, with the first reason; other skips are not meant."""
    skips = [
        SimpleNamespace(longrepr=("", 1, f"Skipped: {reason}")) for reason in ("needs 8 devices", "not exercised: x")
    ]
    lines = []
    reporter = SimpleNamespace(stats={"skipped": skips}, write_line=lambda line, **_: lines.append(line))
    pytest_terminal_summary(reporter)
    assert lines == ["NOT EXERCISED: 1 benchmarks, first x"]


def test_one_that_is_known_and_missed_fails_before_another_is_unknown():
    """A skip hides no failure."""
    with pytest.raises(FloorError, match="--min-mfu"):
        Floors(0.4, 0.1).judge("fsdp", KNOWN | {"measured": {"mfu": 0.3, "exposed_communication": None}})


def test_without_device_planes_there_is_no_device_time(tmp_path):
    """The CPU backend traces threads of the host and no device: that is no time, and not zero."""
    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready(jax.numpy.ones(3) + 1)
    traces = list(tmp_path.rglob("*.xplane.pb"))
    assert traces
    assert busiest(jax.profiler.ProfileData.from_file(str(traces[0])).planes) is None
