"""Two logical names on one mesh axis: no device could hold such a shard, and a spec that drops one is a silent copy."""

import pytest

from suites.applicability import splits


@pytest.mark.clause("SHD-8", applies=splits("parameters"))
def test_colliding_rules_are_refused(observation, judge):
    """Rules that put two logical axes of one array on one mesh axis MUST be refused with an error that names both, the
    mesh axis and the array."""
    seen = judge.see(observation.collision)
    named = (*seen.logical, seen.mesh_axis, seen.path)
    missing = [name for name in named if name not in seen.error]
    judge.clear([f"it was not refused; expected an error that names {', '.join(named)}"] if not seen.error else [])
    judge.clear([f"the error does not name {', '.join(missing)}: {seen.error!r}"] if missing else [])
