"""The table of realisations is what each compiler writes, both ways: nothing more, nothing less."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from meshproof.hlo import census
from meshproof.hlo.realised import REALISED, TARGETS, realised_on
from tests.unit.hlo.make_fixtures import ACCELERATORS
from tests.unit.hlo.texts import MESH, stored

pytestmark = pytest.mark.newest_stack

TOPOLOGIES = {name.partition(":")[0]: name for name in ACCELERATORS}
COMPILE = """
import json, sys
from meshproof.hlo import census
from tests.unit.hlo import make_fixtures, programs
target, topology = sys.argv[1:]
make = {"cpu": make_fixtures.cpu_devices, "gpu": make_fixtures.gpu_devices}
devices = make[target]() if target in make else make_fixtures.tpu_devices(topology)
model = {"data": 2, "model": 4}
steps = {"two_layers": {"data": 8}, "scanned_layers": model, "collectives": model}
print(json.dumps({
    name: sorted({(e.operation, e.realized_as.replace("-start", "")) for e in census(
        programs.FIXTURES[name](devices).compile().as_text(), mesh)})
    for name, mesh in steps.items()
}))
"""


def written(target: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What the installed compiler of a target writes for shardings alone, and for collectives by hand."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "8",
        "XLA_FLAGS": "",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    command = [sys.executable, "-c", COMPILE, target, TOPOLOGIES.get(target, "")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: {(a, b) for a, b in rows} for name, rows in json.loads(done.stdout.splitlines()[-1]).items()}
    return found["two_layers"] | found["scanned_layers"], found["collectives"]


@pytest.mark.parametrize("target", TARGETS)
def test_the_table_is_what_the_compiler_writes(target: str) -> None:
    """Each realisation in the table appears on its target, and no other one does."""
    needs = {"cpu": "jax", "gpu": "jax_plugins.xla_cuda13"}.get(target, "libtpu")
    try:
        is_installed = find_spec(needs) is not None
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        pytest.skip(f"NOT COMPILED for {TARGETS[target]}: {needs} is not installed, so its column stands unchecked")
    assert written(target) == realised_on(target)


@pytest.mark.parametrize("target", ["cpu", "gpu", "tpu"])
def test_the_stored_texts_agree_with_the_table(target: str) -> None:
    """The texts of jax 0.12.0.1 that are stored, for a TPU those of v5e, hold what the table says, and no more."""
    sharded, by_hand = realised_on({"tpu": "v5e"}.get(target, target))
    for name, mesh, expected in (
        ("two_layers", {"data": 8}, sharded),
        ("scanned_layers", MESH, sharded),
        ("collectives", MESH, by_hand),
    ):
        entries = census(stored(f"{target}-0.12.0.1-{name}"), mesh)
        assert {(e.operation, e.realized_as.replace("-start", "")) for e in entries} <= expected


def test_unknown_target_is_refused() -> None:
    """A target without a column is an error that lists those with one; every target of a row has a column."""
    with pytest.raises(ValueError, match="'v3'; expected one of cpu, gpu"):
        realised_on("v3")
    assert {target for each in REALISED for target in (*each.sharded, *each.by_hand)} == set(TARGETS)
