"""The ladder of memory, rung by rung."""

import pytest

from meshproof.memory import theoretical_bytes
from suites.applicability import stored_otherwise, unless


@pytest.mark.clause("MEM-1")
def test_state_bytes_equal_theory(case, observation, judge):
    """State bytes per device MUST equal theory: each leaf divided by the axes that its declared spec splits it over,
    and besides them only single elements, such as step counters."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    judge.promised(case.contract.optimizer_state, "layout of the optimizer state")
    for when in ("at_birth", "before", "after"):
        layouts = judge.see(getattr(observation, when))
        leaves = (*judge.see(layouts.parameters), *judge.see(layouts.optimizer_state))
        sizes = (theoretical_bytes([leaf], case.mesh) for leaf in leaves)
        expected = sum(size for leaf, size in zip(leaves, sizes, strict=True) if size > leaf.itemsize)
        seen = layouts.state_bytes - layouts.scalar_bytes
        if seen != expected:
            judge.fail([f"{when}: {seen:,} bytes of state on the fullest device, theory says {expected:,}"])


@pytest.mark.clause("MEM-1", applies=unless(stored_otherwise))
def test_gradient_bytes_equal_theory(case, observation, judge):
    """Gradient bytes per device MUST equal theory: each leaf divided by the axes that its declared spec splits it
    over."""
    judge.promised(case.contract.gradients, "layout of the gradients")
    leaves = judge.see(observation.gradient_layout)
    judge.declared(leaves)
    seen, expected = sum(leaf.bytes_per_device for leaf in leaves), theoretical_bytes(leaves, case.mesh)
    if seen != expected:
        judge.fail([f"{seen:,} bytes of gradients on the fullest device, theory says {expected:,}"])
