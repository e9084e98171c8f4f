"""What is known to fail: TOML entries, each with the versions that have the fault and a link.

``suites/expectations.toml`` is for the reference implementation; give ``--expectations`` a file for your own.
"""

from meshproof.expectations.entries import Expectation, ExpectationError, parse, read

__all__ = ["Expectation", "ExpectationError", "parse", "read"]
