"""The reader sees what the suites assert: a page's table and its contract are one."""

import re
from dataclasses import replace
from importlib import import_module
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules

import pytest

from reference_impl import strategies
from reference_impl.forms.annotated import JaxForm
from reference_impl.forms.keeping import NnxAveraging, NnxAveragingPmap
from reference_impl.mapping import Mapping
from reference_impl.models.batch_norm_cnn import BatchNormCNN
from reference_impl.models.gpt import GPT
from reference_impl.models.mlp import MLP
from reference_impl.strategies import (
    context_parallel,
    context_parallel_all_gather,
    context_parallel_all_to_all,
    data_parallel,
    fsdp,
    fsdp_tensor_parallel,
    hsdp,
    sequence_parallel_collective_matmul,
    sequence_parallel_shard_map,
    sync_batch_norm,
    sync_batch_norm_pmap,
    tensor_parallel,
    vocabulary_parallel,
    zero1,
    zero2,
)
from reference_impl.truth import Momentum

ROWS = ("parameters", "gradients", "optimizer state", "batch", "forward moves", "step moves")
LONGEST = 150
ROOT = Path(__file__).parents[2]
BOOK = import_module("reference_impl.strategies")  # the attribute of that name is a function
MODULES = [import_module(f"{BOOK.__name__}.{module.name}") for module in iter_modules(BOOK.__path__)]

WIDTHS, BATCH, FLOAT32 = (784, 512, 2048, 512, 10), 256, 4
PERCEPTRON, BLOCK = MLP(widths=WIDTHS), GPT(length=16, embed=64, heads=8, head_dim=8, blocks=1)


@pytest.fixture(params=MODULES, ids=lambda module: module.PAGE.name)
def module(request):
    """The module of every strategy's page."""
    return request.param


def stated(docstring):
    """The rows of the table in a page's docstring, each on one line."""
    tables = [block for block in cleandoc(docstring).split("\n\n") if block.lstrip().startswith(ROWS[0])]
    assert len(tables) == 1, f"{len(tables)} paragraphs begin with a row {ROWS[0]!r}, expected one"
    parts = re.split(rf"^ *({'|'.join(ROWS)})  +", tables[0], flags=re.MULTILINE)
    return {row: " ".join(text.split()) for row, text in zip(parts[1::2], parts[2::2], strict=True)}


def rendered(page):
    """The same rows, from what the contract is made of."""
    split = {axis: page.compute.of(axis) for axis in ("batch", "length") if page.compute.of(axis)}
    return {
        "parameters": str(page.parameters),
        "gradients": str(page.gradients),
        "optimizer state": str(page.optimizer),
        "batch": str(Mapping(**split)),
        "forward moves": "; ".join(map(str, page.communication.forward)) or "nothing",
        "step moves": "; ".join(map(str, page.communication.step)) or "nothing",
    }


def moved(page, mesh, network=PERCEPTRON):
    """What a step of the page moves by its contract: elements by operation, axis and payload."""
    form = JaxForm(page, mesh, Momentum(), network, batch_size=BATCH)
    lines = form.contract.step
    return {(line.operation, *line.axes, line.payload): line.bytes // FLOAT32 for line in lines}


def test_table_is_the_contract(module):
    """The table in a page's docstring is what its mappings and its budget render to."""
    assert stated(module.__doc__) == rendered(module.PAGE)


def test_file_is_named_as_its_strategy(module):
    """Who looks for a strategy finds its file."""
    assert module.__name__ == f"{BOOK.__name__}.{module.PAGE.name}"


@pytest.mark.parametrize("name", ["compute", "parameters", "gradients", "optimizer"])
def test_changed_mapping_is_noticed(name):
    """A mapping that is changed without its table is noticed."""
    changed = replace(fsdp.PAGE, **{name: Mapping(batch="replica", embed="replica")})
    assert stated(fsdp.__doc__) != rendered(changed)


@pytest.mark.parametrize("name", ["forward", "step"])
def test_changed_budget_is_noticed(name):
    """A line of the budget that is dropped without its table is noticed."""
    budget = fsdp.PAGE.communication
    changed = replace(fsdp.PAGE, communication=replace(budget, **{name: getattr(budget, name)[1:]}))
    assert stated(fsdp.__doc__) != rendered(changed)


def test_every_page_has_a_case():
    """No page is only read: each is run by at least one case."""
    assert {form.name for form in strategies()} == {module.PAGE.name for module in MODULES}


def test_page_is_short(module):
    """One strategy, one page: at most 150 lines."""
    lines = len(Path(module.__file__).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{module.__name__} has {lines} lines"


def test_data_parallel_moves_every_gradient():
    """Data parallelism all-reduces every gradient and the loss: 2,506,762 + 1 elements."""
    parameters = sum(d * f + f for d, f in pairwise(WIDTHS))
    assert parameters == 2_506_762
    assert moved(data_parallel.PAGE, {"data": 8}) == {
        ("all-reduce", "data", "gradients"): parameters,
        ("all-reduce", "data", "metrics"): 1,
    }


def test_fsdp_moves_every_sharded_parameter():
    """FSDP gathers and scatters all but the biases of the layers whose output is no embedding: 2,504,704 elements."""
    whole = 2048 + 10
    sharded = 2_506_762 - whole
    assert sharded == 2_504_704
    assert moved(fsdp.PAGE, {"data": 8}) == {
        ("all-gather", "data", "parameters"): sharded,
        ("reduce-scatter", "data", "gradients"): sharded,
        ("all-reduce", "data", "gradients"): whole,
        ("all-reduce", "data", "metrics"): 1,
    }


def test_zero_moves_what_data_parallelism_moves():
    """ZeRO-1 all-reduces every gradient, ZeRO-2 scatters those it can; both gather the 2,504,704 updated elements."""
    whole, sharded = 2048 + 10, 2_504_704
    gathered = {("all-gather", "data", "parameters"): sharded, ("all-reduce", "data", "metrics"): 1}
    assert moved(zero1.PAGE, {"data": 8}) == gathered | {("all-reduce", "data", "gradients"): 2_506_762}
    assert moved(zero2.PAGE, {"data": 8}) == gathered | {
        ("reduce-scatter", "data", "gradients"): sharded,
        ("all-reduce", "data", "gradients"): whole,
    }


def test_hsdp_exchanges_shards_between_replicas():
    """On replica=2, data=4 a device exchanges a quarter of each sharded gradient: 626,176 elements and the biases."""
    whole, sharded = 2048 + 10, 2_504_704
    assert moved(hsdp.PAGE, {"replica": 2, "data": 4}) == {
        ("all-gather", "data", "parameters"): sharded,
        ("reduce-scatter", "data", "gradients"): sharded,
        ("all-reduce", "data", "gradients"): whole,
        ("all-reduce", "replica", "gradients"): 626_176 + whole,
        ("all-reduce", "data", "metrics"): 1,
        ("all-reduce", "replica", "metrics"): 1,
    }


def test_axes_of_one_device_move_nothing():
    """On data=1, model=8 FSDP with tensor parallelism is tensor parallelism, on data=8, model=1 it is FSDP."""
    assert moved(fsdp_tensor_parallel.PAGE, {"data": 1, "model": 8}) == moved(tensor_parallel.PAGE, {"model": 8})
    assert moved(fsdp_tensor_parallel.PAGE, {"data": 8, "model": 1}) == moved(fsdp.PAGE, {"data": 8})


def test_tensor_parallel_moves_one_activation_each_way():
    """Tensor parallelism all-reduces one [256, 512] forward and one backward: 262,144 elements."""
    elements = 2 * BATCH * 512
    assert elements == 262_144
    assert moved(tensor_parallel.PAGE, {"model": 8}) == {("all-reduce", "model", "activations"): elements}


def test_vocabulary_parallel_moves_the_stream_and_three_numbers_a_token():
    """Into and out of heads, MLP and vocabulary a [256, 16, 64]; and three numbers of the logits of 256·16 tokens."""
    elements = 3 * 2 * BATCH * 16 * 64 + 3 * BATCH * 16
    assert elements == 1_585_152
    assert moved(vocabulary_parallel.PAGE, {"model": 8}, BLOCK) == {("all-reduce", "model", "activations"): elements}


@pytest.mark.parametrize(
    ("form", "page", "backward"),
    [(NnxAveraging, sync_batch_norm.PAGE, 1), (NnxAveragingPmap, sync_batch_norm_pmap.PAGE, 2)],
)
def test_a_norm_moves_its_statistics_and_their_gradients(form, page, backward):
    """Of 24 channels two numbers each forward; backward one where a compiler has reduced the scale's gradient already,
    and by hand two again."""
    contract = form(page, {"data": 8}, Momentum(), BatchNormCNN(channels=(3, 8, 16))).contract
    forward, step = (
        [line.bytes for line in budget if line.payload == "statistics"] for budget in (contract.forward, contract.step)
    )
    assert (forward, step) == ([24 * 2 * FLOAT32], [24 * (2 + backward) * FLOAT32])


def test_trading_heads_sends_less_than_a_ring():
    """Of 4 devices each trades its quarter of q, k, v and o, and sends 3/4 of it: half of 3 hops of k and v."""
    quarter, mesh = BATCH // 2 * 16 // 4 * 8 * 8, {"data": 2, "context": 4}
    traded = moved(context_parallel_all_to_all.PAGE, mesh, BLOCK)["all-to-all", "context", "activations"]
    passed = moved(context_parallel.PAGE, mesh, BLOCK)["collective-permute", "context", "activations"]
    assert (traded, passed) == (2 * 4 * quarter, 2 * 3 * 2 * quarter)
    assert traded * 3 / 4 == passed * 2 / 4


def test_gathering_keys_sends_as_much_as_a_ring():
    """Of 4 devices each sends 3/4 of what is gathered, k and v, and of their gradients: 3 hops of its own k and v."""
    mesh = {"data": 2, "context": 4}
    gathers = moved(context_parallel_all_gather.PAGE, mesh, BLOCK)
    keys = [gathers[way, "context", "activations"] for way in ("all-gather", "reduce-scatter")]
    passed = moved(context_parallel.PAGE, mesh, BLOCK)["collective-permute", "context", "activations"]
    assert keys == [2 * BATCH // 2 * 16 * 8 * 8] * 2
    assert sum(keys) * 3 / 4 == passed


def test_decomposed_products_send_what_gathers_and_scatters_do():
    """Of 4 devices each sends 3/4 of what both move, of a [128, 16, 64] into and out of heads and MLP: in 3 hops."""
    mesh = {"data": 2, "model": 4}
    at_once = moved(sequence_parallel_shard_map.PAGE, mesh, BLOCK)
    both = [at_once[way, "model", "activations"] for way in ("all-gather", "reduce-scatter")]
    ring = moved(sequence_parallel_collective_matmul.PAGE, mesh, BLOCK)
    assert both == [2 * 2 * 128 * 16 * 64] * 2
    assert ring["collective-permute", "model", "activations"] == sum(both) * 3 / 4


def test_fsdp_tensor_parallel_divides_both():
    """On data=2, model=4 a device gathers its quarter of the wide layers and all of the others: 931,840 elements."""
    quarters = 2 * 512 * 2048 // 4
    sharded = 784 * 512 + 512 + quarters + 512 + 512 * 10
    assert sharded == 931_840
    assert moved(fsdp_tensor_parallel.PAGE, {"data": 2, "model": 4}) == {
        ("all-gather", "data", "parameters"): sharded,
        ("reduce-scatter", "data", "gradients"): sharded,
        ("all-reduce", "model", "activations"): 2 * (BATCH // 2) * 512,
        ("all-reduce", "data", "gradients"): 2048 // 4 + 10,
        ("all-reduce", "data", "metrics"): 1,
    }
