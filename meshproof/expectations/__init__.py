"""What is known to fail: entries in TOML, each a fault with its link, and where it holds.

``suites/expectations.toml`` speaks of the reference implementation, a file of your own (``--expectations``) of yours.
"""

from meshproof.expectations.entries import Expectation, ExpectationError, parse, read

__all__ = ["Expectation", "ExpectationError", "parse", "read"]
