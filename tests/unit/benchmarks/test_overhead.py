"""The table of overheads compares like with like."""

from types import SimpleNamespace

import pytest

from benchmarks import overhead


def timed(name, devices, seconds, key="mlp", flops=100.0, executions=(2, 1)):
    """A case that took so long in each round."""
    program = SimpleNamespace(
        facts={"flops": flops}, collectives=[SimpleNamespace(executions=number) for number in executions]
    )
    case = SimpleNamespace(
        strategy=SimpleNamespace(name=name, model="mlp"), mesh={"data": devices}, devices=devices, id=name
    )
    found = object.__new__(overhead.Timed)
    found.case, found.program, found.key, found.seconds = case, program, key, seconds
    return found


def test_ratios_are_of_one_round():
    """A round that is slow for both is no overhead: ratios are taken round by round, and their median is told."""
    alone, other = timed("single_device", 1, [0.001, 0.010, 0.001]), timed("single_device", 1, [9.0] * 3, key="gpt")
    slower = timed("fsdp", 8, [0.003, 0.030, 0.003], flops=25.0)
    *_, row = overhead.table([other, alone, slower]).splitlines()
    assert row == "| `fsdp` | mlp | data=8 | 3.0 | 3.0 (3.0–3.0) | 2.00 | 3 |"


def test_without_its_single_device_there_is_no_row():
    """A strategy whose single device was not timed is an error, and compared with no other."""
    with pytest.raises(KeyError):
        overhead.table([timed("single_device", 1, [1.0] * 3, key="gpt"), timed("fsdp", 8, [1.0] * 3)])
