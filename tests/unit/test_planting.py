"""No planted fault replaces another: only where that is meant is a name planted again, with clauses of its own."""

import pytest

from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.nnx_form import NnxForm
from reference_impl.strategies import data_parallel
from tests.saboteurs import planting
from tests.saboteurs.planting import DATA, plant


@pytest.fixture(autouse=True)
def nothing_planted(monkeypatch):
    """A garden of its own."""
    monkeypatch.setattr(planting, "CAUGHT_BY", {})
    monkeypatch.setattr(planting, "PLANTED", [])


def test_a_second_plant_of_a_name_is_refused():
    """Unless it says that it is another case of that fault; the clauses of the first are as they were."""
    plant("gone", JaxForm, data_parallel.PAGE, DATA, "NUM-2")
    with pytest.raises(ValueError, match=r"gone-nnx-mlp@data=8: gone is planted already, as gone-jax-mlp@data=8: "):
        plant("gone", NnxForm, data_parallel.PAGE, DATA, "COM-5")
    assert {"gone-jax-mlp@data=8": {"NUM-2"}} == planting.CAUGHT_BY
    plant("gone", NnxForm, data_parallel.PAGE, DATA, "COM-5", another_case=True)
    assert {"gone-jax-mlp@data=8": {"NUM-2"}, "gone-nnx-mlp@data=8": {"COM-5"}} == planting.CAUGHT_BY


def test_the_same_case_is_refused():
    """Whatever it says: a report could not tell the two apart."""
    plant("gone", JaxForm, data_parallel.PAGE, DATA, "NUM-2")
    with pytest.raises(ValueError, match=r"gone-jax-mlp@data=8 is planted twice"):
        plant("gone", JaxForm, data_parallel.PAGE, DATA, "COM-5", another_case=True)


def test_another_case_of_nothing_is_refused():
    """Its first case was renamed or is gone."""
    with pytest.raises(ValueError, match="no other case of gone is planted before it"):
        plant("gone", JaxForm, data_parallel.PAGE, DATA, "NUM-2", another_case=True)
