"""Sizes are read from shapes, whatever a trainer calls its parameters."""

from math import prod

import pytest

from meshproof.contract import leaves
from meshproof.planning.models import Model
from meshproof.planning.reading import layers_of, sizes_of
from reference_impl.models.gpt import GPT
from reference_impl.models.scanned_gpt import ScannedGPT

WORDS = {"x": ((16, 32), "int32"), "y": ((16, 32), "int32")}
LLAMA = {
    "embed_tokens/kernel": (1000, 64),
    **{
        f"layers/{number}/{name}": shape
        for number in range(3)
        for name, shape in {
            "attn/q": (64, 8, 8),
            "attn/k": (64, 2, 8),
            "attn/v": (64, 2, 8),
            "attn/o": (8, 8, 64),
            "mlp/gate": (64, 160),
            "mlp/up": (64, 160),
            "mlp/down": (160, 64),
            "norm/scale": (64,),
        }.items()
    },
    "lm_head/kernel": (64, 1000),
}


@pytest.mark.parametrize("kind", [GPT, ScannedGPT], ids=["numbered", "stacked"])
def test_the_book_is_read(kind):
    """Its blocks, numbered or stacked; its width, heads and vocabulary; not its positions, which are as many as words
    of a sequence."""
    network = kind(vocab=96, length=32, embed=64, heads=8, head_dim=8, mlp=256, blocks=4)
    found = sizes_of(dict(leaves(network.shapes)), WORDS)
    assert found.pop("parameters") == sum(prod(shape) for _, shape in leaves(network.shapes))
    assert found == {
        "examples": 16,
        **{"layers": 4, "d_model": 64, "d_ff": 256, "length": 32, "vocabulary": 96, "heads": 8, "kv_heads": 8},
        "tied": True,
    }


def test_a_table_of_positions_is_no_vocabulary():
    """Though it has more rows than there are words, and more than a sequence has tokens."""
    found = sizes_of(LLAMA | {"position_embedding": (2048, 64), "wpe/pos": (4096, 64)}, WORDS)
    assert found["vocabulary"] == 1000 and found["tied"] is False


def test_stacks_may_have_no_name_above_them():
    """Kernels of three dimensions tell how many layers there are; a table beside them is none."""
    shapes = {"w_in": (4, 64, 256), "w_out": (4, 256, 64), "scale": (4, 64), "embed": (96, 64), "head": (64, 96)}
    found = sizes_of(shapes, WORDS)
    assert (found["layers"], found["d_model"], found["d_ff"], found["vocabulary"]) == (4, 64, 256, 96)
    assert layers_of(shapes | {"other": (3, 64, 64)})[0] == 0


def test_two_stacks_are_none():
    """An encoder and a decoder, or two towers: what one layer has is not what the other has."""
    second = {f"decoder/{number}/kernel": (64, 640) for number in range(4)}
    assert layers_of(LLAMA | second)[0] == 0
    assert sizes_of(LLAMA | second, WORDS).keys() == {"parameters", "examples", "length"}


def test_another_trainer_is_read():
    """A gate, grouped heads and a head of its own."""
    found = sizes_of(LLAMA, WORDS)
    parameters = found.pop("parameters")
    assert found == {
        "examples": 16,
        **{"layers": 3, "d_model": 64, "d_ff": 160, "length": 32, "vocabulary": 1000, "heads": 8, "kv_heads": 2},
        "tied": False,
    }
    del found["examples"]
    model = Model("read", parameters, **found)
    assert model.is_gated and not model.is_tied and model.embedding == 2 * 64000


@pytest.mark.parametrize(
    "shapes",
    [
        {"dense_0/kernel": (64, 256), "dense_1/kernel": (256, 10)},
        {"norm/scale": (64,), "norm/bias": (64,), "kernel": (64, 64)},
        {"block_0/kernel": (64, 64), "block_1/kernel": (64, 32)},
    ],
    ids=["unlike layers", "a norm is no stack", "numbered, but unlike"],
)
def test_what_is_no_stack_has_its_parameters_only(shapes):
    """Layers of different shapes are none that are alike."""
    assert layers_of(shapes)[0] == 0
    assert sizes_of(shapes, {"x": ((8, 64), "float32")}).keys() == {"parameters", "examples"}


def test_an_image_has_no_length_and_no_vocabulary():
    """Nothing of a batch of floats is a word."""
    found = sizes_of(dict(leaves(GPT(blocks=2).shapes)), {"x": ((8, 16, 64), "float32")})
    assert "length" not in found and "vocabulary" not in found and found["layers"] == 2
