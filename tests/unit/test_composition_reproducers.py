"""Scripts of compositions: short, of nothing but JAX, and said to be missing where they cannot be written."""

import ast
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from meshproof.operations.observing import Point
from meshproof.operations.reproducers import NoSourceError
from meshproof.operations.transforms import PLAIN, Transform
from meshproof.operations.transforms.bodies import BODIES
from meshproof.operations.transforms.observing import FamilySeen
from meshproof.operations.transforms.reproducers import LONGEST, script, write_reproducers
from meshproof.operations.transforms.settings import FORMS, GROUNDS, Form, Setting
from meshproof.operations.transforms.sources import fitted
from meshproof.operations.transforms.table import INNER, OUTER
from tests.saboteurs.operations.composed import PLANTED

ZEROS = [[np.zeros((8, 8))] * 2] * 2


def wrong(setting):
    """A composition whose gradient is wrong, as it is seen."""
    point = Point(setting.name, "gradient", "wrong")
    return FamilySeen("planted", (point,), {}, (), {setting.name: ZEROS})


def setting(outer=PLAIN, inner=PLAIN, body=BODIES[0], form=FORMS[1], axis_type="Auto"):
    """A composition over four devices."""
    return Setting(outer, inner, body, form, GROUNDS[1], axis_type)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
@pytest.mark.parametrize("transform", INNER, ids=lambda transform: transform.name)
def test_a_script_of_every_transform_and_body_is_short(transform, body):
    """In all forms with ``shard_map``: valid Python of which no line knows Meshproof."""
    for form in FORMS[1:]:
        own = setting(PLAIN, transform, body, form, "Explicit")
        if own.is_possible:
            text = script(own, "gradient", wrong(own))
            assert len(text.splitlines()) <= LONGEST and "meshproof" not in text and "devices." not in text
            ast.parse(text)


def test_each_transform_is_where_the_form_says():
    """Around ``shard``, or within it."""
    grad, vmap = (next(each for each in OUTER if each.name == name) for name in ("grad", "vmap"))
    told = {"innermost": "grad(vmap(shard(local)))", "between": "grad(shard(vmap(local)))"}
    for place, expected in (told | {"outermost": "shard(grad(vmap(local)))"}).items():
        own = setting(grad, vmap, form=Form(place))
        assert f"composed = {expected}" in script(own, "gradient", wrong(own))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (setting(form=FORMS[0]), "without shard_map, what stands for its collectives takes too many lines"),
        (setting(Transform("part", partial(jax.jit))), "part is a partial, expected a function of Python"),
        (
            setting(body=next(each for each in PLANTED if "psum" in each.id).bodies[0]),
            "added is a custom_vjp, expected a function of Python",
        ),
    ],
)
def test_why_there_is_no_script_is_said(tmp_path, own, said):
    """In words, with the name of the composition."""
    assert [*write_reproducers({own.name: own}, wrong(own), tmp_path)] == [f"none of {own.name} ({said})"]


def test_one_of_each_pair_of_transforms_is_written(tmp_path):
    """However many compositions of it failed."""
    settings = [setting(form=form) for form in FORMS[1:3]] + [setting(inner=INNER[1])]
    seen = [wrong(each) for each in settings]
    expected = {name: parts for each in seen for name, parts in each.expected.items()}
    every = replace(seen[0], points=tuple(point for each in seen for point in each.points), expected=expected)
    paths = [*write_reproducers({each.name: each for each in settings}, every, tmp_path)]
    assert paths == [str(tmp_path / name) for name in ("plain-plain.py", "plain-jit.py")]


def test_lines_share_only_where_python_allows_it():
    """A definition has its own."""
    assert fitted(["a = 1", "b = 2", "def f(): return 1", "c = 3"], 3) == ["a = 1; b = 2", "def f(): return 1", "c = 3"]
    with pytest.raises(NoSourceError, match="it takes 2 lines, expected at most 1"):
        fitted(["def f(): return 1", "c = 3"], 1)
