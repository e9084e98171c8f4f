"""Which pages of the book are compared, on which models, in which frameworks."""

import jax
import numpy as np
import pytest

from reference_impl import strategies
from reference_impl.lifecycle.choosing import begun, cases, choose, panels
from reference_impl.lifecycle.loss_curves import SINGLE

BOOK = {form.name for form in strategies()}


def asked(form):
    """What decides the losses."""
    return form.network.plain, form.optimizer, form.batch_size


@pytest.mark.parametrize("framework", ["jax", "nnx", "linen"])
def test_every_page_is_compared_on_each_model_of_its_cases(framework):
    """In the framework, or in the first that the page has; and each time one device first, which is asked the same."""
    spoken = {}
    for form in cases():
        if form.framework == framework or form.name not in spoken:
            spoken[form.name] = form.framework
    of_book = {(form.name, form.model, form.framework) for form in cases() if form.framework == spoken[form.name]}
    compared = panels(framework, "", 0)
    shown = [(page, form.model, form.framework) for of in compared.values() for page, form in of.items()]
    assert len(shown) == len(set(shown)) and set(shown) >= of_book and {page for page, *_ in shown} == BOOK
    assert {page for page, *_ in set(shown) - of_book} == {SINGLE}
    for title, of in compared.items():
        alone, *others = of.values()
        assert next(iter(of)) == SINGLE and set(alone.mesh_axes.values()) == {1} and others
        assert {f"{form.model} ({form.framework})" for form in of.values()} == {title}
        assert {page: form for page, form in of.items() if asked(form) != asked(alone)} == {}


def test_one_model_is_compared_by_all_pages_that_take_it():
    """Also those that the book has no case of."""
    [(title, forms)] = panels("jax", "gpt", 32).items()
    assert title == "gpt (jax)" and {"zero1", "expert_fsdp"} <= set(forms)
    assert {form.batch_size for form in forms.values()} == {32}


def test_a_model_that_pipelines_alone_take_is_compared_with_one_device_too():
    """Which the book has no case of."""
    [(title, forms)] = panels("jax", "stacked_mlp", 0).items()
    assert title == "stacked_mlp (jax)" and next(iter(forms)) == SINGLE and "pipeline_1f1b" in forms
    assert {asked(form) for form in forms.values()} == {asked(forms[SINGLE])}


def test_an_interleaved_pipeline_begins_as_the_others():
    """Bit for bit, though its own ``init`` draws the blocks in the order in which its stages have them."""
    plain, interleaved = (choose(f"pipeline_{name}", "jax", "", None, 0) for name in ("gpipe", "interleaved"))
    expected, own = (form.parameters(form.init(jax.random.key(0))) for form in (plain, interleaved))
    found = interleaved.parameters(begun(interleaved, 0))
    same = jax.tree.map(np.array_equal, found, expected)
    assert all(jax.tree.leaves(same)) and not np.array_equal(own["dense_3"]["kernel"], expected["dense_3"]["kernel"])
