"""What was asked of a plan, as it was written."""

import re

import pytest

from meshproof.planning.advice import decision_path, pitfalls
from meshproof.planning.asked import asked_model
from meshproof.planning.document import answer
from meshproof.planning.layouts import Layout
from meshproof.planning.models import Model, PlanError
from meshproof.planning.search import reckon
from meshproof.planning.verifying import compare
from tests.unit.planning.plans import question

SIZES = {"parameters": 3 * (2 * 64**2 + 2 * 64 * 16 + 3 * 64 * 160), "layers": 3, "d_model": 64, "d_ff": 160}
READ = {"case": "fsdp-jax-gqa@data=8", "sizes": SIZES | {"heads": 8, "kv_heads": 2}}


@pytest.mark.parametrize(("heads", "kept"), [({}, 2), ({"heads": 8}, 2), ({"heads": 4}, 0)])
def test_heads_that_were_read_keep_those_of_keys(heads, kept):
    """They are dropped with others beside which they were not read."""
    assert asked_model(None, None, heads, READ).kv_heads == kept


def test_sizes_that_contradict_what_was_read_are_told():
    """By the name of the case."""
    with pytest.raises(
        PlanError, match=r"sizes read of fsdp-jax-gqa@data=8: --params .* --layers and the others count"
    ):
        asked_model(None, None, {"layers": 30}, READ)


@pytest.mark.parametrize(
    ("given", "idle"),
    [({"heads": 8}, "--heads"), ({"tied": False, "vocabulary": 50_000}, "--vocab and --tied/--untied")],
)
def test_sizes_without_layers_are_no_answer_to_anything(given, idle):
    """What would change nothing is refused, with what it needs."""
    with pytest.raises(PlanError, match=f"^{idle} would change nothing: a model without --layers"):
        asked_model(None, 7e9, given, {})


@pytest.mark.parametrize(("tied", "fits"), [(None, True), (True, True), (False, False)])
def test_an_unembedding_is_held_to_the_parameters(tied, fits):
    """A second matrix of the vocabulary has no room beside these layers: 3.96 to 6.59 billion with one of 1.05."""
    stack = {"layers": 32, "d_model": 4096, "d_ff": 11008, "vocabulary": 256_000}
    given = stack | ({} if tied is None else {"tied": tied})
    if fits:
        assert asked_model(None, 5.1e9, given, {}).layers == 32
    else:
        with pytest.raises(PlanError, match=r"--params 5\.1e\+09 contradicts .* with the vocabulary 6\.0"):
            asked_model(None, 5.1e9, given, {})


def test_what_fits_without_its_batch_alone_is_not_said_to_fit():
    """The state of a device is less than its memory, and what a microbatch adds is more than the rest."""
    asked = question(Model("deep", 0.9e9, 16, 2048, 8192, vocabulary=50_000, length=65_536), "v5e", 1, 65_536)
    first = next(decision_path(asked, reckon(asked)))
    assert not answer(asked).fits
    assert first.startswith(
        "Does it fit on one device? Not with its batch: parameters, gradients and moments take 14.4 GB"
    )


def test_a_ring_whose_hops_take_longer_than_its_bytes_is_said_so():
    """So many tokens hide the bytes of a tiny model, and not the latency of 64 hosts: the bound alone says yes."""
    asked = question(Model("tiny", 2.7e4, 2, 32, 128, vocabulary=64, length=64), "h100", 64, 64 * 4096)
    plans = reckon(asked)
    told = [line for line in decision_path(asked, plans) if line.startswith(("Does a batch", "Do its hops"))]
    assert "data parallelism or FSDP moves? Yes" in told[0]
    assert re.match(
        r"Do its hops hide, too\? No: products take .* ms, what moves 0\.\d+ ms in a ring of 64 devices, of which its "
        r"[\d,]+ bytes at 400 GB/s are 0\.000\d+ ms\.",
        told[1],
    )
    [hops] = [line for line in pitfalls(asked, plans) if "leaves the links" in line]
    assert "ms, most of it the latency of hops, products" in hops


def test_bytes_that_a_record_does_not_know_are_not_none():
    """They depend on the data."""
    moved = [{"axes": ["data"], "operation": "all-reduce", "bytes": size} for size in (4, None)]
    case = {"id": "a", "memory": {"state": 1, "temporary": 1}, "collectives": moved}
    found = {each.what: each for each in compare(question("llama-8b", "h100", 8), Layout(data=8), case)}
    assert found["moved over data"].compiler is None and found["moved over data"].ratio is None
