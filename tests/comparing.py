"""Small reports to compare: two cases of toys, with a fact of every kind."""

from copy import deepcopy

from meshproof.comparison import compare

CASES = ("fsdp-jax-toy@data=8", "tensor_parallel-jax-toy@model=8")
STACK = {
    **{"python": "3.12.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "flax": "0.12.12", "numpy": "2.5.5"},
    **{"optax": "0.2.8", "orbax": None, "platform": "cpu", "device_kind": "cpu", "device_count": 8},
    **{"xla_flags": "", "time": "2026-11-21T21:19:00+00:00", "defaults": {"partitioner": "shardy"}, "packages": {}},
}
ALL_REDUCE = {
    **{"operation": "all-reduce", "axes": ["data"], "executions": 2, "tensors": 4, "bytes": 4096, "dtype": "f32"},
    **{"realized_as": "all-reduce", "phase": "backward"},
}
LEAF = {"spec": "P('data',)", "shape": [16], "axes": [["data"]], "shard_shape": [2]}
MEMORY = {"state": 1000, "arguments": 1100, "outputs": 1010, "aliased": 1000, "temporary": 5000}


def case(name):
    """What a report says of one case."""
    strategy, framework, model = name.partition("@")[0].split("-")
    error = {"error": 1e-7, "allowed": 1e-6, "signal": 1.0, "margin": 0.1}
    return {
        **{"id": name, "strategy": strategy, "framework": framework, "model": model, "mesh": {"data": 8}},
        **{"target": "cpu", "truth": "brought", "losses": [2.0, 1.0], "expected_losses": [2.0, 1.0]},
        **{"digest": "ab" * 32, "errors": {f"loss of step {step}: loss": error for step in (1, 2)}},
        **{"shardings": {"w": LEAF}, "collectives": [ALL_REDUCE], "forward_collectives": [], "memory": MEMORY},
        **{"flops": 1e6, "compile_seconds": 10.0, "problem": None},
        "warnings": [{"category": "DeprecationWarning", "message": "old is old since 3.1", "at": "page.py:3"}],
    }


def judgement(clause, name, status="proved", margin=0.2, message=""):
    """What a report says of one clause of one case."""
    id_ = f"suites/test_{clause}.py::test[{name}]"
    return {"id": id_, "case": name, "status": status, "margin": margin, "ratio": None, "message": message}


def report(**environment):
    """A report of which every part may be changed: nothing in it is shared."""
    clauses = [
        {"id": clause, "statement": f"{clause} MUST hold.", "status": "proved", "worst_margin": 0.2}
        | {"tests": [judgement(clause, name) for name in CASES]}
        for clause in ("COM-4", "NUM-3")
    ]
    made = {"schema": 2, "environment": STACK | environment, "implementation": "reference_impl"}
    made |= {"run": {"finished": True, "warm": False, "arguments": ["suites"]}, "clauses": clauses}
    return deepcopy(made | {"cases": [case(name) for name in CASES], "unmatched_expectations": []})


def changed(**facts):
    """A report whose first case has other facts."""
    made = report()
    made["cases"][0] |= facts
    return made


def judged(status="proved", margin=0.2, clause=0):
    """A report in which the first case's test of a clause came out so."""
    made = report()
    made["clauses"][clause]["tests"][0] |= {"status": status, "margin": margin, "message": "what was seen"}
    return made


def told(old, new):
    """Each difference of two reports as (change, kind, place)."""
    return [(each.change, each.kind, each.place) for each in compare(old, new).differences]
