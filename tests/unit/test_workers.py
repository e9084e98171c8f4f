"""What a run gains from more workers, from the seconds of its tests."""

from docs.workers import deal, scopes, table

RUN = """<testsuites><testsuite>
<testcase classname="suites.test_a" name="test_a[zero1-jax-mlp@data=8]" time="4.0"/>
<testcase classname="suites.test_a" name="test_a[fsdp-jax-mlp@data=8]" time="1.5"/>
<testcase classname="suites.test_b" name="test_b[fsdp-nnx-mlp@data=8]" time="1.5"/>
<testcase classname="suites.test_c" name="test_c" time="1.0"/>
</testsuite></testsuites>"""


def test_a_strategy_is_dealt_whole():
    """Its tests of all files and frameworks together, the one with the most tests first; else a file's."""
    assert scopes(RUN) == [("fsdp", 3.0), ("zero1", 4.0), ("suites.test_c", 1.0)]


def test_each_goes_to_the_worker_that_is_free_first():
    """So that the last ends when the longest does, once there are enough."""
    seconds = [3.0, 4.0, 1.0]
    assert [deal(seconds, workers) for workers in (1, 2, 4)] == [8.0, 4.0, 4.0]


def test_the_table_says_what_bounds_it():
    """The strategy that takes longest."""
    assert "| 2 | 4 | 2.0 |" in table(RUN) and "`zero1` with 4 s" in table(RUN)
