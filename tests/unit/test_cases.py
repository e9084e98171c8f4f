"""What is read of a case's strategy."""

from meshproof.cases import has_member
from meshproof.observing.members import shown
from tests.implementations.unadopted import SIZES


def test_an_object_that_raises_for_what_it_lacks_lacks_it():
    """Of any kind: settings are kept in dicts whose keys are attributes, and which raise ``KeyError``."""
    assert has_member(SIZES, "hidden") and not has_member(SIZES, "shape")
    assert shown(SIZES) == "a Sizes, {'inputs': 16, 'hidden': 32, 'outputs': 8}"
