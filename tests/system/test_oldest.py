"""The oldest JAX that an installation admits is judged, too: what is imported of JAX's inside must be there."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from docs.stacks import pinned
from meshproof.environments import Stack, make_environment
from meshproof.upgrade.runs import run_suites

pytestmark = pytest.mark.newest_stack

ROOT = Path(__file__).parents[2]
OLDEST = ROOT / "constraints" / "jax-0.7.txt"


def test_its_pins_are_the_least_that_is_admitted():
    """Of the packages that meshproof needs."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    [least] = [Requirement(each) for each in needed if Requirement(each).name == "jax"]
    assert f"jax{str(least.specifier).replace('>=', '==')}" in pinned(OLDEST).requirements


def test_the_oldest_stack_is_judged(tmp_path):
    """Annotated, by hand and in NNX, a transformer, and rules: layout, communication, memory and numbers."""
    several = "data_tensor_parallel-jax-mlp or zero2_shard_map or zero1-nnx or vocabulary_parallel or sharding_rules"
    chosen = ["-k", several, "--operations", "none"]
    environment = make_environment(Stack(pinned(OLDEST).requirements))  # on whatever Python is here
    report = run_suites(environment, chosen, tmp_path / "report.json")
    statuses = {clause["id"]: clause["status"] for clause in report["clauses"]}
    assert report["environment"]["jax"] == "0.7.2"
    assert "failed" not in statuses.values()
    assert {statuses[clause] for clause in ("RUN-1", "SHD-1", "COM-11", "NUM-2", "NUM-4", "MEM-1")} == {"proved"}
