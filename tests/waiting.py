"""Waits for what another process or thread is about to do."""

import time


def within(seconds, holds):
    """What ``holds`` returns once that is true, or after so many seconds."""
    until = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < until:
        time.sleep(0.05)
    return found
