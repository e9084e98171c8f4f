"""Whoever looks for what differs between runs sees it."""

from tests.stability import differences, verdicts

REPORT = {
    "clauses": [
        {
            "id": "NUM-2",
            "tests": [
                {"id": "suites/test_a.py::test_a[fsdp]", "status": "proved", "margin": 0.25, "ratio": None},
                {"id": "suites/test_a.py::test_a[zero1]", "status": "proved", "margin": 0.5, "ratio": None},
            ],
        }
    ]
}


def test_equal_runs_do_not_differ():
    """The same report says the same."""
    assert list(differences(verdicts(REPORT), verdicts(REPORT))) == []


def test_a_last_bit_is_a_difference():
    """A margin that differs in its last bit is named, and so is a test that only one run has."""
    first, other = verdicts(REPORT), verdicts(REPORT)
    other["suites/test_a.py::test_a[fsdp]"] = ("proved", 0.25000000000000006, None)
    del other["suites/test_a.py::test_a[zero1]"]
    assert list(differences(first, other)) == [
        "suites/test_a.py::test_a[fsdp]: ('proved', 0.25, None), then ('proved', 0.25000000000000006, None)",
        "suites/test_a.py::test_a[zero1]: ('proved', 0.5, None), then no such test",
    ]
