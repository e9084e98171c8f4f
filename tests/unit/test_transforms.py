"""Compositions of transforms: which are run, what they mean, and that their numbers stay whole."""

from itertools import combinations

import jax
import numpy as np
import pytest

from meshproof.operations.observing import wrong
from meshproof.operations.programs import make_mesh, use
from meshproof.operations.references import float64
from meshproof.operations.transforms import PLAIN, Transform, TransformFamily
from meshproof.operations.transforms.bodies import BODIES
from meshproof.operations.transforms.observing import meanings, observe_family
from meshproof.operations.transforms.programs import cotangents, meaning, operands, with_gradients
from meshproof.operations.transforms.settings import FORMS, GROUNDS, Form, Setting, chosen_settings
from meshproof.operations.transforms.table import FAMILIES, INNER, OUTER

EXACT = 2**24
"""Whole numbers up to here are exact in float32, in whatever order they are added."""


def test_every_pair_of_transforms_is_run():
    """And most pairs of what else there is to choose; the same every time."""
    chosen = chosen_settings(FAMILIES, exhaustive=False)
    assert chosen == chosen_settings(FAMILIES, exhaustive=False)
    settings = [setting for own in chosen.values() for setting in own]
    assert {(each.outer.name, each.inner.name) for each in settings} == {
        (outer.name, inner.name) for outer in OUTER for inner in INNER
    }
    pairs = {pair for each in settings for pair in combinations((each.body.name, *each.choices[3:]), 2)}
    possible = {
        pair
        for body in BODIES
        for form in FORMS
        for ground in GROUNDS
        for kind in ("Auto", "Explicit")
        if not form.closes or body.split[1] is None
        for pair in combinations((body.name, form, ground, kind), 2)
    }
    assert len(pairs) > 0.9 * len(possible)
    assert len({setting.name for setting in settings}) == len(settings)


def test_exhaustive_has_every_body_under_every_form():
    """Of each pair of transforms."""
    [(_, settings)] = chosen_settings(FAMILIES[:1], exhaustive=True).items()
    possible = sum(not form.closes or body.split[1] is None for form in FORMS for body in BODIES)
    assert len(settings) == possible * len(INNER)


def test_numbers_stay_whole():
    """Of operands that are nowhere negative nothing cancels, so that the results bound what is added on the way."""
    settings = [setting for own in chosen_settings(FAMILIES, exhaustive=False).values() for setting in own]
    given = [np.abs(array).astype(np.float64) for array in (*operands(), *cotangents())]
    steep = [each for each in settings if {each.outer.name, each.inner.name} <= {"vmap", "scan", "linearize", "grad"}]
    assert len(steep) > 12
    with float64(), use(make_mesh((1, 1))):
        every = jax.jit(lambda *given: [with_gradients(meaning(each))(*given) for each in steep])(*given)
    for setting, parts in zip(steep, every, strict=True):
        assert max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(parts)) < EXACT, setting.name


def setting(body, form, inner=PLAIN):
    """A composition over four devices."""
    return Setting(PLAIN, inner, next(each for each in BODIES if each.name == body), form, GROUNDS[1], "Auto")


@pytest.mark.parametrize("checks", [True, False])
def test_gradients_within_shard_map_mean_what_is_documented(checks):
    """With ``check_vma``, weights that all share have the gradient of all devices; without, each has its own."""
    [grad] = [transform for transform in OUTER if transform.name == "grad"]
    [(results, _)] = meanings([setting("data", Form("outermost", checks), grad)])
    x, w = (array.astype(np.float64) for array in operands())
    weights = np.arange(1, 9) % 3
    own = [np.maximum(rows, 0).T @ np.broadcast_to(weights, rows.shape) + weights for rows in np.split(x, 4)]
    expected = sum(own) if checks else np.mean(own, 0)
    np.testing.assert_array_equal(results[1], expected)
    of_all_rows = 8 * weights
    np.testing.assert_array_equal(results[0], (weights @ w.T) * (x > 0) + of_all_rows)


def test_gradients_are_slopes():
    """Of what compositions mean: by central differences, where no kink is near."""
    draws = np.random.default_rng(5)
    settings = [setting(body.name, Form("innermost"), inner) for body in BODIES[:3] for inner in INNER[1:6]]
    x, w, *weights = (array.astype(np.float64) for array in (*operands(), *cotangents()))
    x = x + draws.normal(size=x.shape) / 8
    direction = draws.normal(size=x.shape)
    with float64(), use(make_mesh((1, 1))):
        every = jax.jit(lambda *given: [with_gradients(meaning(each))(*given) for each in settings])
        middle, ahead, behind = (every(x + step * direction, w, *weights) for step in (0, 1e-6, -1e-6))
    for each, own, after, before in zip(settings, middle, ahead, behind, strict=True):
        moved = [one - other for one, other in zip(after[0], before[0], strict=True)]
        slope = (np.vdot(weights[0], moved[0]) + np.vdot(weights[1], moved[1])) / 2e-6
        np.testing.assert_allclose(np.vdot(own[1][0], direction), slope, rtol=1e-6, atol=1e-6, err_msg=each.name)


def family(apply):
    """Compositions of one transform with nothing, and what is wrong with them."""
    one = TransformFamily(Transform("planted", apply), (PLAIN,), BODIES[:1])
    settings = [Setting(one.outer, PLAIN, BODIES[0], form, GROUNDS[0], "Auto") for form in FORMS[:3]]
    seen = observe_family(one, settings, lambda layout: None)
    return [(point.direction, point.fate) for point in seen.points], list(wrong(seen))


def test_what_jax_refuses_is_refused():
    """An error of another kind is a fault; a family that is refused everywhere is one, too."""

    def raising(error):
        def transform(function):
            def run(x, w):
                raise error

            return run

        return transform

    fates, told = family(raising(NotImplementedError("not for you")))
    assert fates == [("gradient", "refused"), ("forward", "refused")] * 3
    assert told == ["refused under all 6 layouts, the first time by: NotImplementedError: not for you"]
    fates, told = family(raising(KeyError("x")))
    assert {fate for _, fate in fates} == {"broken"} and len(told) == 6


def test_a_gradient_alone_can_be_refused():
    """The results are then judged by a program of their own."""

    @jax.custom_jvp
    def forward(x):
        return x

    @forward.defjvp
    def refuse(primals, tangents):
        raise NotImplementedError("no gradient")

    fates, told = family(lambda function: lambda x, w: function(forward(x), w))
    assert fates == [("gradient", "refused"), ("forward", "right")] * 3 and not told
