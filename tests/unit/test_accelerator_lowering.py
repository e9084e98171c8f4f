"""On an accelerator the step of GPT-2 does what makes it fast: seen in its StableHLO for CUDA, which needs no GPU.

cuDNN is taken to be there: whether it is, a host with a GPU must say.
"""

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
import pytest

from benchmarks import compile_only
from benchmarks.sizes import SIZES
from meshproof.cases import load_cases
from reference_impl.models import attention
from reference_impl.models.gpt import GPT
from reference_impl.modifiers.rematerialisation import Rematerialised

BLOCKS = 2
"""Blocks are alike, and the more there are the longer lowering takes."""

FORWARD, BACKWARD = "__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"
DIVIDED = "CustomSPMDPartitioning"
"""What stands for either on several devices, until the compiler has divided the program."""

HOST = r"stablehlo\.(infeed|outfeed|send|recv)\b"


@pytest.fixture
def cudnn():
    """A host with a Hopper GPU and cuDNN, as far as lowering asks."""
    with compile_only.cudnn():
        yield


def shortened(network):
    """A transformer, modified as it is, with few blocks."""
    if isinstance(network, GPT):
        return replace(network, blocks=BLOCKS)
    return replace(network, model=shortened(network.model))


def gpt2(size="gpt2-124m", start="single_device-jax-gpt@", network=lambda network: network):
    """The strategy of a size, with few blocks."""
    strategy = next(case.strategy for case in load_cases(SIZES[size]) if case.id.startswith(start))
    return replace(strategy, network=network(shortened(strategy.network)))


def lower(strategy, jitted=None, platform="cuda"):
    """The step of a strategy as StableHLO; and how many arrays its state has."""
    state = strategy.init.lower(jax.random.key(0)).out_info
    batch = dict.fromkeys("xy", jax.ShapeDtypeStruct((strategy.batch_size, 1024), "int32"))
    with jax.set_mesh(strategy.mesh):
        traced = (jitted or strategy.train_step.jitted).trace(state, batch)
        return traced.lower(lowering_platforms=(platform,)).as_text(), len(jax.tree.leaves(state))


def slow(text, leaves, forward=BLOCKS):
    """What of a lowered step would make it slower than it need be, by name; with so many attentions ``forward``."""
    products = [line.rpartition(" : ")[2] for line in text.splitlines() if "stablehlo.dot_general" in line]
    found = Counter(re.findall(r"custom_call @([\w$.]+)", text))
    fused = (found[FORWARD], found[BACKWARD]) == (forward, BLOCKS) or found[DIVIDED] == forward + BLOCKS
    is_so = {
        "products that are not in bfloat16": not products or any("f32" in types for types in products),
        "attention that is not fused": not fused or bool(re.search(r"x1024x1024x\w+>", text)),
        "a state that is not donated": len(re.findall(r"tf\.aliasing_output|jax\.buffer_donor", text)) != leaves,
        "calls to the host": any("callback" in name for name in found) or bool(re.search(HOST, text)),
        "a loop": "stablehlo.while" in text,
        "activations in float32": bool(re.search(r"tensor<\d+x1024x(3072|6400)xf32>", text)),
        "a scatter into the logits": bool(re.search(r"}\) : \(tensor<\d+x1024x50257xf32>, tensor<\S+xi32>", text)),
    }
    return [name for name, so in is_so.items() if so]


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize("size", ["gpt2-124m", "gpt2-xl-1.5b"])
@pytest.mark.parametrize("start", ["single_device-jax-gpt@", "data_parallel-jax-gpt@data=2", "fsdp-jax-gpt@data=2"])
def test_step_is_lowered_for_speed(size, start):
    """bfloat16 products, cuDNN's attention, a donated state, no loop and no host: of GPT-2 on one device and on two."""
    assert slow(*lower(gpt2(size, start))) == []


@pytest.mark.usefixtures("cudnn")
def test_float32_is_kept_for_losses():
    """Logits are multiplied in bfloat16, and brought to float32 once, for the loss."""
    text, _ = lower(gpt2())
    to_float32 = re.findall(r"stablehlo\.convert .*bf16>\) -> tensor<16x1024x50257xf32>", text)
    assert len(to_float32) == 1


@pytest.mark.usefixtures("cudnn")
def test_rematerialised_attention_is_fused():
    """Blocks that are computed anew run the kernel twice forward and once backward."""
    text, leaves = lower(gpt2(network=Rematerialised))
    assert slow(text, leaves, forward=2 * BLOCKS) == []
    assert slow(text, leaves) == ["attention that is not fused"]


@pytest.mark.usefixtures("cudnn")
def test_float32_products_are_noticed():
    """A model without mixed precision is named, and cuDNN does not take its attention."""
    text, leaves = lower(gpt2(network=lambda network: network.model))
    assert slow(text, leaves) == [
        "products that are not in bfloat16",
        "attention that is not fused",
        "activations in float32",
    ]


def test_plain_attention_is_noticed():
    """Without cuDNN the weights (T, T) are held, and that is named."""
    assert slow(*lower(gpt2())) == ["attention that is not fused"]


@pytest.mark.usefixtures("cudnn")
def test_kept_state_is_noticed():
    """A step that does not donate its state is named."""
    strategy = gpt2()
    assert slow(*lower(strategy, jax.jit(strategy.step))) == ["a state that is not donated"]


def test_calls_to_the_host_are_noticed():
    """A step that reports to the host is named; on a CPU, as such a call is lowered where its host is alone."""
    strategy = gpt2()

    def reporting(state, batch):
        state, metrics = strategy.step(state, batch)
        jax.debug.callback(lambda loss: None, metrics["loss"])
        return state, metrics

    lowered = lower(strategy, jax.jit(reporting, donate_argnums=0), platform="cpu")
    assert slow(*lowered) == ["attention that is not fused", "calls to the host"]


@pytest.mark.usefixtures("cudnn")
def test_labels_that_are_looked_up_are_noticed(monkeypatch):
    """A loss that gathers the labels' logits scatters their gradient into all the others', which is named."""

    def looked_up(_, logits_BxTxV, y_BxT):
        return optax.softmax_cross_entropy_with_integer_labels(logits_BxTxV, y_BxT).mean()

    monkeypatch.setattr(GPT, "mean_loss", looked_up)
    assert slow(*lower(gpt2())) == ["a scatter into the logits"]


@pytest.mark.usefixtures("cudnn")
def test_loops_are_noticed():
    """A step whose work is done in a loop is named."""
    strategy = gpt2()

    def looping(state, batch):
        return jax.lax.fori_loop(0, 2, lambda _, carry: strategy.step(carry[0], batch), strategy.step(state, batch))

    assert "a loop" in slow(*lower(strategy, jax.jit(looping, donate_argnums=0)))


@pytest.mark.parametrize(
    ("dtype", "head_dim", "device", "fits"),
    [
        (jnp.bfloat16, 64, {}, True),
        (jnp.float16, 128, {"device_kind": "NVIDIA A100-SXM4-80GB"}, True),
        (jnp.bfloat16, 64, {"device_kind": "NVIDIA GB200"}, True),
        (jnp.float32, 64, {}, False),
        (jnp.bfloat16, 60, {}, False),
        (jnp.bfloat16, 256, {}, False),
        (jnp.bfloat16, 64, {"device_kind": "Tesla V100-SXM2-16GB"}, False),
        (jnp.bfloat16, 64, {"device_kind": "AMD Instinct MI300X"}, False),
        (jnp.bfloat16, 64, {"platform": "tpu"}, False),
        (jnp.bfloat16, 64, {"platform": "cpu"}, False),
    ],
)
def test_kernel_is_asked_for_where_it_exists(dtype, head_dim, device, fits):
    """cuDNN is asked for what it takes, on devices that have it, and for nothing else: it would raise."""
    queries = jax.ShapeDtypeStruct((1, 16, 2, head_dim), dtype)
    assert attention.fits_cudnn(queries, SimpleNamespace(**vars(compile_only.HOPPER) | device)) is fits


def test_without_a_mesh_no_kernel_is_asked_for():
    """A program that is not traced under a mesh does not know its devices."""
    assert not attention.fits_cudnn(jax.ShapeDtypeStruct((1, 16, 2, 64), jnp.bfloat16), None)


def test_what_operations_move_is_counted_once():
    """A product reads two arrays and writes one, a copy reads and writes; what stands for another moves nothing."""
    text = """HloModule m, entry_computation_layout={(f32[8,4]{1,0}, f32[4,2]{1,0})->(f32[8,2]{1,0}, f32[8,2]{1,0})}

ENTRY %main (a: f32[8,4], b: f32[4,2]) -> (f32[8,2], f32[8,2]) {
  %a = f32[8,4]{1,0} parameter(0)
  %b = f32[4,2]{1,0} parameter(1)
  %c = f32[8,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %d = f32[8,2]{1,0} copy(%c)
  ROOT %t = (f32[8,2]{1,0}, f32[8,2]{1,0}) tuple(%c, %d)
}
"""
    product, copy = 4 * (8 * 4 + 4 * 2 + 8 * 2), 4 * 2 * (8 * 2)
    assert compile_only.moved_bytes(text) == product + copy
