"""What became of the facts that only the compiler of an accelerator has, in two reports of a target."""

import pytest

from meshproof.comparison import compare
from meshproof.comparison.accelerators import SYNCHRONOUS
from tests.comparing import ALL_REDUCE, CASES, MEMORY, changed, report, told

TARGET = "tpu:v5e:2x4"
HIDDEN = "step: share of bytes on the wire with a product behind them"
MIB = 1 << 20
SCHEDULE = {"bytes": 7168, "hidden": 3584, "exposed": {"backward": 3584}, "synchronous": 0, "copied_in_loops": 0}
WIRED = {"collectives": [ALL_REDUCE | {"wire_bytes": 7168}], "memory": MEMORY | {"peak": 1 << 30}}
COMPILED = WIRED | {"target": TARGET, "losses": [], "digest": None, "errors": {}, "schedule": SCHEDULE, "usual": WIRED}


def seen(**facts):
    """A report whose first case was compiled for a TPU, with these facts."""
    made = changed(**COMPILED | facts)
    made["clauses"][1]["tests"][0] |= {"status": "not-exercised", "message": "this target only compiles"}
    return made


def test_what_only_compiles_can_be_compared():
    """That no number is judged there is no reason to tell nothing; that nothing is, is one."""
    assert compare(seen(), seen()).outcome == "same"
    idle = seen()
    idle["clauses"][0]["tests"][0] |= {"status": "not-exercised"}
    assert compare(seen(), idle).outcome == compare(idle, idle).outcome == "cannot tell"


def test_what_neither_run_exercised_is_the_same():
    """For one reason, where others were judged of the case: a state without floats has none to compare."""
    runs = [report() for _ in range(3)]
    for run, reason in zip(runs, ("whole numbers alone", "whole numbers alone", "too few devices"), strict=True):
        run["clauses"][1]["tests"][0] |= {"status": "not-exercised", "message": reason}
    assert compare(runs[0], runs[1]).outcome == "same"
    assert compare(runs[0], runs[2]).outcome == compare(report(), runs[0]).outcome == "cannot tell"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"memory": WIRED["memory"] | {"temporary": 5000 + 100 * MIB}}, [("changed", "memory", "temporary")]),
        ({"memory": WIRED["memory"] | {"temporary": 5000 + 200 * MIB}}, [("regressed", "memory", "temporary")]),
        ({"memory": WIRED["memory"] | {"peak": (1 << 30) + 40 * MIB}}, []),
        ({"memory": WIRED["memory"] | {"peak": (1 << 30) + 200 * MIB}}, [("regressed", "memory", "peak")]),
        ({"memory": WIRED["memory"] | {"peak": (1 << 30) - 200 * MIB}}, [("improved", "memory", "peak")]),
        ({"memory": WIRED["memory"] | {"aliased": 0}}, [("regressed", "memory", "not donated")]),
        (
            {"collectives": [ALL_REDUCE | {"wire_bytes": 14336, "realized_as": "all-reduce of zeros"}]},
            [
                ("regressed", "wire", "step: bytes on the wire"),
                ("changed", "collectives", "step: all-reduce over data"),
            ],
        ),
        (
            {"usual": WIRED | {"collectives": [ALL_REDUCE | {"wire_bytes": 14336}]}},
            [("regressed", "wire", "step at default precision: bytes on the wire")],
        ),
        ({"schedule": SCHEDULE | {"synchronous": 3584}}, [("changed", "schedule", f"step: {SYNCHRONOUS}")]),
        (
            {"schedule": SCHEDULE | {"synchronous": 3584, "hidden": 3484}},
            [("regressed", "schedule", HIDDEN), ("changed", "schedule", f"step: {SYNCHRONOUS}")],
        ),
        (
            {"schedule": SCHEDULE | {"copied_in_loops": 9 * MIB}},
            [("regressed", "schedule", "step: bytes of large copies in loops")],
        ),
        (
            {"schedule": SCHEDULE | {"hidden": 0, "exposed": {"backward": 7168}}},
            [("changed", "schedule", HIDDEN)],
        ),
        ({"schedule": SCHEDULE | {"hidden": 3484}}, []),
        ({"schedule": SCHEDULE | {"hidden": None}}, []),
        ({"schedule": None}, [("gone", "schedule", "step")]),
    ],
)
def test_each_fact_of_a_target_is_classified(facts, expected):
    """One fact is planted, and it alone is told, as what it is."""
    assert told(seen(), seen(**facts)) == expected


def test_marin_5394_is_regressed():
    """15 → 54 GiB of temporary memory from jax 0.8.0 to 0.9.2 (https://github.com/marin-community/marin/issues/5394)."""
    was, now = ({"memory": MEMORY | {"temporary": size << 30}} for size in (15, 54))
    comparison = compare(seen(**was), seen(**now))
    assert comparison.exit_code() == 1
    [temporary, *_] = comparison.differences
    assert (temporary.change, temporary.case, temporary.place) == ("regressed", CASES[0], "temporary")
    assert (temporary.old, temporary.new) == ("16,106,127,360 bytes", "57,982,058,496 bytes")


def test_a_run_on_the_host_is_compared_without_them():
    """XLA:CPU's wire and peak are nobody's."""
    wire = {"collectives": [ALL_REDUCE | {"wire_bytes": 1}], "memory": MEMORY | {"peak": 1}}
    assert told(report(), changed(**wire)) == []
