"""One flipped default is one finding, not a hundred."""

import pytest

from meshproof.observing.defaults import flipped_defaults


@pytest.mark.clause("SHD-9")
def test_defaults_are_known(environments, judge):
    """The defaults of mesh axis types, partitioner, RNG partitionability, matmul precision and x64, and each value that
    release notes name as changed, MUST be those known of this version of JAX and Flax. (Of a release that is newer than
    all known, the settings and draws; what else changed is recorded, and ``meshproof compare`` tells.)"""
    judge.clear(problem for environment in environments.values() for problem in flipped_defaults(environment))
