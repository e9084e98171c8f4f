"""Saved runs of benchmarks, made up: what was timed, on which machine, and how long it took."""

import copy
import json

import numpy as np

IDENTITY = {
    "platform": "cpu",
    "device_kind": "cpu",
    "devices": 8,
    "host": "Some CPU",
    "dtype": "float32",
    "model": "mlp/tiny",
}
FACTS = {"bytes_by_axis": {"data": 1000}, "flops": 2e6}
STACK = {"jax": "0.10.2", "python": "3.11.7"}


def rounds(seconds=0.1, count=10, noise=0.01, seed=0):
    """Rounds around a median."""
    return (seconds * np.exp(noise * np.random.default_rng(seed).standard_normal(count))).tolist()


def entry(
    name="test_toy.py::test_time[a]",
    seconds=0.1,
    seed=0,
    witness=0.01,
    witnesses=None,
    identity=None,
    facts=None,
    measured=None,
    **stack,
):
    """One benchmark as pytest-benchmark saves it."""
    return {
        "fullname": name,
        "stats": {"data": rounds(seconds, seed=seed)},
        "extra_info": {
            "identity": IDENTITY | (identity or {}),
            "facts": FACTS if facts is None else facts,
            "stack": STACK | stack,
            "measured": measured or {},
            "witnesses": {"one core": rounds(witness, noise=0.001)} if witnesses is None else witnesses,
        },
    }


def train_step(
    strategy="fsdp", seconds=0.2, mesh=None, batch=64, measured=None, test="test_step_time", variant="", **identity
):
    """A benchmark whose rounds, of ten steps each, all took ten times so long."""
    mesh = mesh or {"data": 8}
    name = f"{strategy}-mlp+{variant}@{mesh}, {batch}, {identity}"
    told = {"strategy": strategy, "framework": "jax", "mesh": mesh, "batch_size": batch, "variant": variant}
    told |= {"steps_per_window": 10, "pipeline": None} | identity
    made = entry(f"benchmarks/{test}.py::{test}[{name}]", identity=told, measured={"mfu": None} | (measured or {}))
    made["stats"]["data"] = [10 * seconds] * 10
    return made


def single_device(seconds=0.1, **settings):
    """The single device."""
    return train_step("single_device", seconds, {"data": 1}, **settings)


def pipeline_step(count, seconds, stages=4, strategy="pipeline_gpipe", examples=32, shape=None, **settings):
    """A pipeline of so many microbatches of 32 examples."""
    shape = {"stages": stages, "microbatches": count, "chunks": 1} | (shape or {})
    made = {"variant": f"microbatches{count}", "batch": count * examples, "pipeline": shape} | settings
    return train_step(strategy, seconds, {"stage": stages}, **made)


def run(*entries, problems=None, outcomes=None):
    """A whole run."""
    compared = {"baseline": "some.json", "outcomes": outcomes} if outcomes else None
    return {"benchmarks": copy.deepcopy(entries), "meshproof": {"problems": problems or {}, "compared": compared}}


def save(path, *entries, **settings):
    """The path of a run that was saved there."""
    path.write_text(json.dumps(run(*entries, **settings)), encoding="utf-8")
    return path
