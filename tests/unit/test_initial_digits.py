"""Initial values of programs that became machine code quickly, and round otherwise than users' do."""

from functools import cached_property

import jax
import numpy as np
import pytest

from meshproof.cases import Case
from meshproof.observing.initialisation import FOR_SPEED, observe_initialisation
from meshproof.observing.subject import Subject
from tests.healthy.recipes import DataParallel


class Rounded:
    """An ``init`` whose program has other last digits on the mesh, unless it is compiled as asked for."""

    def __init__(self, init, options):
        self.init, self.options = init, options

    def __call__(self, key):
        """By the program that was made quickly."""
        return jax.tree.map(lambda leaf: leaf * (1 + 2**-23) if leaf.ndim else leaf, self.init(key))

    def lower(self, key):
        """As JAX names its stages."""
        return self

    def compile(self, compiler_options=None):
        """The one that is asked for."""
        whole = self.init.lower(jax.random.key(0)).compile(compiler_options=compiler_options)
        return whole if compiler_options == self.options else self

    def as_text(self):
        """Of the program."""
        return self.init.lower(jax.random.key(0)).compile().as_text()


class Quick(DataParallel):
    """It rounds so with these options, on the mesh alone."""

    options = FOR_SPEED

    @cached_property
    def init(self):
        """On one device as it is."""
        made = super().init
        return Rounded(made, self.options) if self.mesh_axes["data"] > 1 else made


class Another(Quick):
    """Whatever the options."""

    options = None


@pytest.mark.parametrize(("kind", "equal"), [(Quick, True), (Another, False)])
def test_other_digits_are_of_the_programs_that_users_have(kind, equal):
    """Both are compiled for speed, where one stream has other bits; what differs then is told."""
    trainer = kind()
    seen, _ = observe_initialisation(Subject(Case(kind.__name__, trainer, trainer.mesh_axes, "cpu")))
    assert seen.parameters.keys() == seen.alone.keys() == {"hidden", "out"}
    assert all(np.array_equal(seen.parameters[path], seen.alone[path]) for path in seen.alone) == equal
