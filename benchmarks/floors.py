"""What a benchmark must reach, if that is asked for: a share of the peak, and not too much waiting for links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

UNKNOWN = {
    "--min-mfu": "no MFU is known of {kind} in {dtype}: benchmarks/peaks.py has no peak of it, or the strategy no "
    "model_flops",
    "--max-communication": "{kind} tells no communication: its traces have no device",
}


class FloorError(Exception):
    """A benchmark that is timed rightly and does not reach what was asked for."""


@dataclass(frozen=True)
class Floors:
    """The least MFU, and the largest share of a window in which a device only communicates; ``None``: any."""

    min_mfu: float | None = None
    max_communication: float | None = None

    def judge(self, case: str, known: Mapping[str, Any]) -> None:
        """Raises `FloorError` where a time's record is beyond them. Skips, as not exercised, what nobody can tell."""
        measured, identity = known["measured"], known["identity"]
        mfu, waiting = measured.get("mfu"), measured.get("exposed_communication")
        if self.min_mfu is not None and mfu is not None and mfu < self.min_mfu:
            raise FloorError(f"{case}: expected an MFU of at least {self.min_mfu:.1%} (--min-mfu), saw {mfu:.1%}")
        if self.max_communication is not None and waiting is not None and waiting > self.max_communication:
            raise FloorError(
                f"{case}: expected a device to wait for communication for at most {self.max_communication:.1%} of the "
                f"time (--max-communication), saw {waiting:.1%}"
            )
        asked = {"--min-mfu": (self.min_mfu, mfu), "--max-communication": (self.max_communication, waiting)}
        for option, (floor, seen) in asked.items():
            if floor is not None and seen is None:
                told = UNKNOWN[option].format(kind=identity["device_kind"], dtype=identity["dtype"])
                pytest.skip(f"{NOT_EXERCISED}{option} {floor:g} of {case}: {told}")


NOT_EXERCISED = "not exercised: "


def read_share(option: str, text: str) -> float:
    """A share. Raises ``pytest.UsageError`` for what is none."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise pytest.UsageError(f"{option} {text}: expected a share from 0 to 1, such as 0.4")
    return share
