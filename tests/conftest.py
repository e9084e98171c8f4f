"""What holds for all tests: hypothesis times no example, and what a test starts is no worker of xdist."""

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # on a busy machine any example may be slow
settings.load_profile("untimed")


@pytest.fixture(autouse=True, scope="session")
def no_worker():
    """A run of pytest that a test starts does not take itself for a worker, where nothing would be timed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        yield
