"""Bytes on the wire: those of a ring, for what the compiler wrote."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshproof.hlo import Collective, best_wire_bytes, census, devices_of
from meshproof.hlo.wire import parts_sent, span_of
from tests.unit.hlo.test_realisations import SCATTERED, padded
from tests.unit.hlo.texts import MESH, all_reduce, module, sliced, stored


def ring(operation: str, shards: int, devices: int) -> int:
    """Elements that one device of a simulated ring sends for an array of so many elements for each device."""
    count = 0
    if operation in ("all-reduce", "reduce-scatter"):
        parts = np.ones((devices, devices))
        for step in range(devices - 1):
            moved = [parts[device, (device - step) % devices] for device in range(devices)]
            for device in range(devices):
                parts[(device + 1) % devices, (device - step) % devices] += moved[device]
            count += shards
        assert all(parts[device, (device + 1) % devices] == devices for device in range(devices))
    if operation in ("all-reduce", "all-gather"):
        count += shards * (devices - 1)
    if operation == "all-to-all":
        count += shards * (devices - 1)
    return count


@given(
    st.sampled_from(["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]),
    st.integers(1, 50),
    st.integers(2, 16),
)
def test_formulas_are_those_of_a_ring(operation: str, shards: int, devices: int) -> None:
    """A simulated ring sends what the formula says."""
    assert parts_sent(operation, shards * devices, devices) == devices * ring(operation, shards, devices)
    assert best_wire_bytes(operation, shards * devices, devices) == ring(operation, shards, devices)


def test_unknown_operation_has_no_formula() -> None:
    """An operation without a formula is an error that lists those that have one."""
    with pytest.raises(ValueError, match="'all-shuffle'; expected one of all-gather"):
        best_wire_bytes("all-shuffle", 8, 2)


def test_devices_of_axes_and_parts() -> None:
    """The devices of a group are the product of whole axes and of parts."""
    assert devices_of(("data", "model:(2)2"), {"data": 2, "model": 4}) == 4
    with pytest.raises(KeyError, match="stage"):
        devices_of(("stage",), {"data": 2})


def one(text: str) -> Collective:
    """The one entry of a census."""
    (entry,) = census(text, MESH)
    return entry


def excess(entry: Collective) -> int:
    """Bytes that a device sends beyond those of the best realisation."""
    return (entry.wire_bytes or 0) - best_wire_bytes(entry.operation, entry.bytes or 0, devices_of(entry.axes, MESH))


def test_what_is_written_goes_over_the_wire() -> None:
    """An all-reduce of zeros for a gather, and one that is sliced, send twice what their meaning needs."""
    gathered, scattered = one(padded("0", "divide")), one(sliced(*SCATTERED["own slice"]))
    assert (gathered.operation, gathered.bytes, gathered.wire_bytes, excess(gathered)) == ("all-gather", 256, 256, 128)
    assert (scattered.operation, scattered.wire_bytes, excess(scattered)) == ("reduce-scatter", 256, 128)
    assert (one(all_reduce("{}")).wire_bytes, excess(one(all_reduce("{}")))) == (448, 0)
    assert one(all_reduce("{{0,1},{2,3},{4,5},{6,7}}")).wire_bytes == 256


def test_a_fused_scatter_sends_what_a_scatter_sends() -> None:
    """TPU's fusion all-reduce-scatter holds an all-reduce, and sends half of one; CPU's is written out, and is one."""
    for name, of in (("tpu-0.12.0.1-two_layers", 1), ("gpu-0.12.0.1-two_layers", 1), ("cpu-0.12.0.1-two_layers", 2)):
        found = [e for e in census(stored(name), {"data": 8}) if e.operation == "reduce-scatter"]
        large = [e for e in found if (e.bytes or 0) > 4096]
        assert large
        assert all(e.wire_bytes == of * (e.bytes or 0) * 7 // 8 for e in large)


def test_the_source_of_a_permute_sends_all_of_it() -> None:
    """A device that is a source sends its array once."""
    permute = """%p = f32[64]{0} parameter(0)
        ROOT %r = f32[64]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,4},{1,5}}"""
    assert one(module(permute)).wire_bytes == 256


def test_what_is_not_known_sends_an_unknown_amount() -> None:
    """Where bytes are unknown, those on the wire are."""
    entries = census(stored("cpu-0.12.0.1-loops"), MESH)
    assert {entry.wire_bytes is None for entry in entries if entry.bytes is None} == {True}
    assert {entry.wire_bytes is None for entry in entries if entry.bytes is not None} == {False}


def test_a_part_of_an_axis_has_its_own_size_and_distance():
    """Of 2 × 8 devices; what is no part of an axis is an error."""
    mesh = {"data": 2, "model": 8}
    spans = {"data": (2, 8), "model": (8, 1), "model:(2)4": (4, 1), "model:(1)2": (2, 4), "model:(2)2": (2, 2)}
    assert {axis: span_of(axis, mesh) for axis in spans} == spans
    for wrong in ("model:(3)2", "model:(0)2", "model:2", "data:(2)2"):
        with pytest.raises(ValueError, match=r"is no part of (model|data), which has [28] devices"):
            span_of(wrong, mesh)
    with pytest.raises(KeyError):
        span_of("expert", mesh)
