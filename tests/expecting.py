"""Files of expectations to be read, run with and rewritten."""

import tomlkit

LINK = "https://example.com/issues/1"


def entry(name, outcome="xfail", reason="known upstream", **when):
    """An entry for the tests of a toy."""
    return {"test": f"suites/test_toy.py::*[{name}-*]", "when": when, "outcome": outcome, "reason": reason, "url": LINK}


def write(path, *entries):
    """A file of these entries."""
    path.write_text(tomlkit.dumps({"expectation": list(entries)} if entries else {}), encoding="utf-8")
    return path
