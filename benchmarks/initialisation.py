"""Timed ``init``: the making of one state, checked each time."""

import jax

from meshproof.observing.brought_truth import digest
from meshproof.observing.state import array_leaves, finite_state, host

from .window import WindowError, is_ready


class Initialisation:
    """The making of one state, always from the same key."""

    def __init__(self, case):
        self.case, self.events, self.state = case, [], None
        self.key = jax.block_until_ready(jax.random.key(0))
        self.run()
        self.first = self.content()

    def run(self):
        """The timed part."""
        self.state = jax.block_until_ready(self.case.strategy.init(self.key))

    def content(self):
        """A digest of the state, which must be the same every time."""
        return digest([host(dict(array_leaves(self.state)))])

    def check(self, *_):
        """Check that the state is ready, finite and equal to the first, and that nothing compiled; then delete it."""
        if not all(map(is_ready, jax.tree.leaves(self.state))):
            raise WindowError(f"{self.case.id}: init was not waited for")
        if self.events:
            raise WindowError(f"{self.case.id}: init compiled while it was timed: {', '.join(set(self.events))}")
        finite = finite_state(array_leaves(self.state))
        if finite.failures:
            raise WindowError(f"{self.case.id}: init made what is not finite: {finite}")
        if self.content() != self.first:
            raise WindowError(f"{self.case.id}: init made another state of the same key")
        self.state = None
