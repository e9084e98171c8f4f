"""A report of a run with something of everything, another of an older stack, and their comparison."""

import copy

from tests.unit.test_expectations_update import STACK

LONG = "fsdp_tensor_parallel_by_storage_alone-jax-a_model_with_a_long_name+explicit@data=2,model=4"
MESSAGE = """COM-6 is violated by fsdp-jax-mlp@data=8: Parameters MUST move over the FSDP axis.
  - step: all-gather over data: expected 538,624 bytes, saw 0; budget: all-gather of parameters over data
run it alone: pytest 'suites/test_axes.py::test_axes[fsdp-jax-mlp@data=8]'"""


def new_report():
    """Four strategies on meshes of one to four axes; a clause of each status."""
    cases = [
        _case("single_device-jax-mlp@data=1", {"data": 1}, [[], []]),
        _case("fsdp-jax-mlp@data=8", {"data": 8}, [["data"], []]),
        _case("fsdp-nnx-mlp@data=8", {"data": 8}, [["data"], []]),
        _case(LONG, {"data": 2, "model": 4}, [["model"], ["data"]]),
        _case("parallel-jax-mlp@pod=2,stage=2", {"pod": 2, "stage": 2, "data": 2, "model": 4}, [["pod", "data"], []]),
    ]
    ids = [case["id"] for case in cases]
    return {
        **{"schema": 2, "environment": _environment("0.12.0.1"), "implementation": "reference_impl"},
        "run": {"finished": True, "warm": False, "arguments": ["suites", "-k", "mlp and not bf16"]},
        "clauses": [
            _clause("COM-6", failed=ids[1:4], proved=ids[4:]),
            _clause("ERR-1", proved=[None, *ids]),
            _clause("MEM-2", **{"expected-failure": ids[:1]}, proved=ids[1:]),
            _clause("NUM-1", proved=ids[:3], **{"not-supported": ids[3:]}),
            _clause("SHD-10", **{"not-exercised": ids}),
        ],
        "cases": cases,
        "unmatched_expectations": [_expectation("suites/test_gone.py::*")],
    }


def old_report():
    """The same cases on an older stack but for one: nothing fails, losses and bytes differ, a layout differs."""
    report = copy.deepcopy(new_report())
    report["environment"] = _environment("0.10.2")
    for clause in report["clauses"][:1]:
        clause["status"] = "proved"
        for test in clause["tests"]:
            test |= {"status": "proved", "message": ""}
    for case in report["cases"]:
        case["losses"] = [loss * 1.1 for loss in case["losses"]]
        case["collectives"][0]["bytes"] //= 4
        case["memory"]["temporary"] *= 2
        case["shardings"]["dense/kernel"]["axes"] = [[], ["data"]]
    report["cases"].pop()
    return report


def judged_case(model="mlp", margin=0.1, **facts):
    """A case of a report whose losses were judged."""
    [made, *_] = new_report()["cases"]
    error = made["errors"]["loss: step 0"] | {"margin": margin}
    return copy.deepcopy(made) | {"model": model, "errors": {"loss of step 1: loss": error}} | facts


def comparison(old, new):
    """What tells the two apart, by hand."""
    cases = ("fsdp-jax-mlp@data=8", "fsdp-nnx-mlp@data=8", LONG)
    differences = [_difference("regressed", "clause", case, "COM-6", "proved", "failed", MESSAGE) for case in cases]
    differences += [
        _difference("changed", "memory", cases[0], "temporary", "1,048,576", "524,288"),
        _difference("changed", "memory", cases[1], "temporary", "2,097,152", "524,288"),
        _difference("changed", "defaults", None, "mesh_axis_types", "Auto", "Explicit"),
        _difference("new", "case", new["cases"][-1]["id"], "case", "not there", "observed"),
    ]
    return {
        **{"comparison": 1, "verdict": "regressed", "implementation": "reference_impl"},
        "sentence": "COM-6 held with jax 0.10.2 and fails with 0.12.0.1 in 3 cases",
        **{"old": old["environment"], "new": new["environment"], "cannot_tell": ["the runs differ in --devices"]},
        "counts": {"regressed": 3, "changed": 3, "improved": 0, "new": 1, "gone": 0, "same": 5120},
        "differences": differences,
    }


def _environment(jax):
    packages = {"jax": jax, "jaxlib": jax, "numpy": "2.5.5"}
    defaults = {"mesh_axis_types": "Explicit", "matmul_precision": None}
    flags = "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=8"
    return STACK | {"jax": jax, "jaxlib": jax, "xla_flags": flags, "defaults": defaults, "packages": packages}


def _case(case, mesh, axes):
    strategy, framework, model = case.partition("@")[0].split("-")
    leaf = {"spec": "P('data', None)", "shape": [784, 128], "axes": axes, "shard_shape": [98, 128]}
    return {
        **{"id": case, "strategy": strategy, "framework": framework, "model": model, "mesh": mesh, "target": "cpu"},
        **{"truth": "single_device", "losses": [3.52, 2.88, 2.15], "expected_losses": [3.52, 2.87, 2.14]},
        **{"digest": "c5a33ecc", "flops": 10246429.0, "compile_seconds": 4.05, "problem": "evaluation: it has none"},
        "errors": {
            "gradients: dense/kernel": {"error": 1e-7, "allowed": 1e-6, "signal": 0.1, "margin": 0.1},
            "loss: step 0": {"error": 2e-7, "allowed": 1e-6, "signal": 0.1, "margin": 0.2},
        },
        "shardings": {
            "dense/kernel": leaf,
            "momentum/dense/kernel": leaf,
            "dense/bias": leaf | {"shape": [128], "axes": [[]], "shard_shape": [128]},
            "step": leaf | {"spec": "P()", "shape": [], "axes": [], "shard_shape": []},
            "odd": leaf | {"spec": "GSPMDSharding", "axes": None, "shard_shape": None},
        },
        "collectives": [_collective("all-gather", ["data"], 538624), _collective("all-reduce", list(mesh), None)],
        "forward_collectives": [_collective("all-gather", ["data"], 538624)],
        "memory": {"state": 470096, "arguments": 495216, "outputs": 470236, "aliased": 470096, "temporary": 524288},
        "warnings": [{"category": "DeprecationWarning", "message": "lift is deprecated", "at": "flax/core/lift.py:1"}],
    }


def _collective(operation, axes, size):
    counts = {"executions": 6, "tensors": 6, "bytes": size}
    written = {"dtype": "f32", "realized_as": operation, "phase": "forward"}
    return {"operation": operation, "axes": axes, **counts, **written}


def _clause(name, **cases):
    tests = [
        {
            **{"id": f"suites/test_axes.py::test_axes[{case}]", "case": case, "status": status, "margin": 0.5},
            **{"ratio": None, "message": "" if status == "proved" else MESSAGE},
            "expectation": {"status": "xfailed", "entries": [_expectation("suites/test_axes.py::*")]}
            if status == "expected-failure"
            else None,
        }
        for status, own in cases.items()
        for case in own
    ]
    statement = "Parameters MUST move over the FSDP axis, activations over the tensor axis."
    return {"id": name, "statement": statement, "status": next(iter(cases)), "tests": tests, "worst_margin": 0.5}


def _expectation(test):
    told = {"reason": "known upstream", "url": "https://example.com/issues/1", "when": {"jax": ">=0.12"}}
    return {"file": "suites/expectations.toml", "number": 1, "test": test, "outcome": "xfail", **told}


def _difference(change, kind, case, place, old, new, detail=""):
    return {"change": change, "kind": kind, "case": case, "place": place, "old": old, "new": new, "detail": detail}
