"""The ladder of memory, rung by rung."""

import pytest

from meshproof.measures.memory import theoretical_bytes

from .applicability import stored_otherwise, unless

MOMENTS = {"at_birth": "at birth", "before": "before training", "after": "after training"}
UNIT = "bytes on the fullest device"
THEORY = "theory: each leaf's bytes, divided by the axes of its declared spec"


@pytest.mark.clause("MEM-1")
def test_state_bytes_equal_theory(case, observation, judge):
    """State bytes per device MUST equal theory: each leaf divided by the axes that its declared spec splits it over,
    and besides them only single elements, such as step counters."""
    judge.promised(case.contract.parameters, "layout of the parameters")
    judge.promised(case.contract.optimizer_state, "layout of the optimizer state")
    for when in ("at_birth", "before", "after"):
        layouts = judge.see(getattr(observation, when))
        leaves = (*judge.see(layouts.parameters), *judge.see(layouts.optimizer_state))
        sizes = {leaf: theoretical_bytes([leaf], case.mesh) for leaf in leaves}
        expected = sum(size for leaf, size in sizes.items() if size > leaf.itemsize)
        seen = layouts.state_bytes - layouts.scalar_bytes
        judge.equal(f"state {MOMENTS[when]}", seen, expected, UNIT, f"{THEORY}; {furthest(sizes)}")


@pytest.mark.clause("MEM-1", applies=unless(stored_otherwise))
def test_gradient_bytes_equal_theory(case, observation, judge):
    """Gradient bytes per device MUST equal theory: each leaf divided by the axes that its declared spec splits it
    over."""
    judge.promised(case.contract.gradients, "layout of the gradients")
    leaves = judge.see(observation.gradient_layout)
    judge.declared(leaves)
    sizes = {leaf: theoretical_bytes([leaf], case.mesh) for leaf in leaves}
    seen = sum(leaf.bytes_per_device for leaf in leaves)
    judge.equal("gradients", seen, sum(sizes.values()), UNIT, f"{THEORY}; {furthest(sizes)}")


def furthest(sizes):
    """The leaf whose bytes are furthest from theory, if any leaf's are."""
    leaf = max(sizes, key=lambda leaf: abs(leaf.bytes_per_device - sizes[leaf]))
    held, size = leaf.bytes_per_device, sizes[leaf]
    return f"furthest is {leaf.path} with {held:,} bytes for {size:,}" if held != size else "every leaf is as it says"
