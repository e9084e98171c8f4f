"""A composition that failed as a script of at most fifteen lines of nothing but JAX, fit for an issue upstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

from meshproof.files import replace_text
from meshproof.operations.layouts import AXES, spelled
from meshproof.operations.reproducers import HEAD, NoSourceError, literal, mesh_line
from meshproof.operations.transforms import PLAIN
from meshproof.operations.transforms.observing import FamilySeen
from meshproof.operations.transforms.programs import cotangents, operands, specs_of
from meshproof.operations.transforms.settings import Setting
from meshproof.operations.transforms.sources import Sources, fitted

LONGEST = 15


def write_reproducers(settings: Mapping[str, Setting], seen: FamilySeen, folder: Path) -> Iterator[str]:
    """Write the script of the first composition of each pair of transforms that is wrong or broken.

    Yields its path, or why there is none in words.
    """
    done = set[Path]()
    for point in seen.points:
        setting = settings[point.layout]
        path = folder / f"{setting.outer.name}-{setting.inner.name}.py"
        if point.fate not in ("wrong", "broken") or path in done:
            continue
        done.add(path)
        try:
            text = script(setting, point.direction, seen)
        except NoSourceError as error:
            yield f"none of {setting.name} ({error})"
            continue
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(path, text)
        yield str(path)


def script(setting: Setting, direction: str, seen: FamilySeen) -> str:
    """A script that fails where the suite did. Raises `NoSourceError`."""
    if setting.form.place == "none":
        raise NoSourceError("without shard_map, what stands for its collectives takes too many lines")
    sources = Sources()
    local = sources.body(setting.body.function, setting.ground.axis, setting.ground.size)
    chosen = [each for each in (setting.inner, setting.outer) if each.name != PLAIN.name]
    names = [sources.spelled(each.apply, each.name) for each in chosen]
    within = {"innermost": 0, "between": int(setting.inner in chosen)}.get(setting.form.place, len(names))
    x, w = map(spelled, specs_of(setting))
    arrays = ", ".join(map(literal, (*operands(), *cotangents())))
    first = 2 * (direction == "gradient")
    expected = ", ".join(literal(part.astype("float32")) for part in seen.expected[setting.name][first // 2])
    lines = [
        *HEAD,
        mesh_line(setting.ground.mesh, setting.axis_type),
        *sources.lines,
        f"shard = lambda f: {sharded(setting)}",
        f"composed = {around(local, [*names[:within], 'shard', *names[within:]])}",
        program(setting, seen),
        f"given = [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip([{arrays}], [{x}, {w}] * 2)]",
        f"with jax.set_mesh(mesh): saw = jax.jit(run)(*given)[{first}:{first + 2}]",
        f"expected = [np.asarray(e) for e in [{expected}]]",
        "for s, e in ((s, e[s.index]) for array, e in zip(saw, expected) for s in array.addressable_shards): "
        'assert np.array_equal(s.data, e), f"on {s.device}: {s.data}, expected {e}"',
    ]
    return "\n".join([*fitted(lines, LONGEST), ""])


def around(local: str, names: Sequence[str]) -> str:
    """Each function around what is before it."""
    return reduce(lambda told, name: f"{name}({told})", names, local)


def sharded(setting: Setting) -> str:
    """What ``shard_map`` makes of a function ``f``. Copies that differ leave it one by one, and are averaged."""
    given = "x" if setting.form.closes else "x, w"
    specs = [*map(spelled, specs_of(setting))]
    stacked = tuple(setting.differs and dimension is None for dimension in setting.body.split)
    out = [f"P({setting.ground.axis!r})" if stack else spec for spec, stack in zip(specs, stacked, strict=True)]
    axes = setting.ground.axes if setting.ground.automatic else AXES[: len(setting.ground.mesh)]
    options = (
        f"in_specs=({f'{specs[0]},' if setting.form.closes else ', '.join(specs)}), out_specs=({', '.join(out)}), "
    )
    options += f"axis_names={{{', '.join(map(repr, axes))}}}, check_vma={setting.form.check_vma}"
    if not any(stacked) and not setting.form.closes:
        return f"jax.shard_map(f, mesh=mesh, {options})"
    if not any(stacked):
        return f"lambda x, w: jax.shard_map(lambda x: f(x, w), mesh=mesh, {options})(x)"
    function = f"lambda {given}: tuple(r[None] if s else r for r, s in zip(f(x, w), {stacked}))"
    results = f"jax.shard_map({function}, mesh=mesh, {options})({given})"
    return f"lambda x, w: tuple(r.mean(0) if s else r for r, s in zip({results}, {stacked}))"


def program(setting: Setting, seen: FamilySeen) -> str:
    """The results, and the gradients by the same program where that was not refused."""
    if (setting.name, "refused") in {(point.layout, point.fate) for point in seen.points}:
        return "run = lambda x, w, *ct: [*composed(x, w)]"
    cotangents = "ct"
    if setting.axis_type == "Explicit":
        cotangents = "tuple(jax.reshard(c, jax.typeof(r).sharding) for c, r in zip(ct, y))"
    return f"def run(x, w, *ct): y, pull = jax.vjp(composed, x, w); return [*y, *pull({cotangents})]"
