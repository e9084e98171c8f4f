"""What ``adopt`` takes for parameters, and what for the optimizer's: by paths, where a trainer does not say."""

import pytest

from meshproof.adopting.parts import find_parts


def test_parts_are_found_by_moments():
    """Parameters are what moments are kept of; step counters are the optimizer's, averages and statistics neither."""
    shapes = {
        "params/w": (4, 4),
        "opt_state/0/count": (),
        "opt_state/0/mu/w": (4, 4),
        "opt_state/0/nu/w": (4, 4),
        "ema/w": (4, 4),
        "step": (),
    }
    parts = find_parts(shapes)
    assert parts.parameters == "params" and parts.others == {"ema_w": "ema/w"}
    assert parts.optimizer_state == {
        "count": "opt_state/0/count", "mu": "opt_state/0/mu", "nu": "opt_state/0/nu",
    }  # fmt: skip


def test_an_average_is_not_taken_for_parameters_that_an_optimizer_holds():
    """As ``flax.optim`` did, under ``optimizer/target``: which of the two is trained no path tells."""
    shapes = {f"{tree}/w": (4, 4) for tree in ("params_ema", "optimizer/target", "optimizer/state/momentum")}
    with pytest.raises(LookupError, match=r"no array of the state can be a parameter; give the trainer parameters"):
        find_parts(shapes)


def test_moments_by_hand_are_found():
    """By names that no layer has."""
    shapes = {"weights/embed": (8, 4), "weights/ln": (4,), "step": ()}
    shapes |= {
        f"adam_{kind}/{path}": shape for kind in ("mu", "nu") for path, shape in [("embed", (8, 4)), ("ln", (4,))]
    }
    parts = find_parts(shapes)
    assert (parts.parameters, parts.others) == ("weights", {})
    assert parts.optimizer_state == {"adam_mu": "adam_mu", "adam_nu": "adam_nu"}


def test_parts_of_a_tuple_are_found():
    """As NNX has them: a model with statistics, and an optimizer. Two counters keep two names."""
    shapes = {"0/w": (4,), "0/bn/mean": (4,), "1/opt_state/0/trace/w": (4,), "1/opt_state/1/count": (), "1/count": ()}
    parts = find_parts(shapes, frozenset({"0/bn/mean"}))
    assert (parts.parameters, parts.without, parts.others) == ("0", ("bn/*",), {"0_bn_mean": "0/bn/mean"})
    assert sorted(parts.optimizer_state.values()) == ["1/count", "1/opt_state/0/trace", "1/opt_state/1/count"]
    assert len(parts.optimizer_state) == 3


def test_keys_and_counters_of_dropout_are_no_parameters():
    """They stand in the model, where NNX keeps them; a norm's statistics stand beside its scale."""
    model = {"a/w": (4,), "drop/rngs/count": (), "drop/rngs/key": (), "norm/scale": (4,), "norm/mean": (4,)}
    shapes = {f"0/{path}": shape for path, shape in model.items()} | {"1/mu/a/w": (4,), "1/mu/norm/scale": (4,)}
    parts = find_parts(shapes, frozenset({"0/drop/rngs/count", "0/drop/rngs/key", "0/norm/mean"}))
    assert (parts.parameters, parts.without) == ("0", ("drop/*", "norm/mean"))


@pytest.mark.parametrize(
    ("shapes", "root"),
    [
        ({"params/w": (4,), "seed": ()}, "params"),
        ({"0/w": (4,), "1/count": ()}, "0"),
        ({"w": (4,)}, ""),
        ({"0/0": (8, 16), "0/1": (16,), "1/0": (16, 16), "1/1": (16,), "2/0": (16, 4), "2/1": (4,)}, ""),
        ({"0/w": (8, 4), "1/w": (8, 4)}, "0"),
    ],
)
def test_parts_without_moments_are_found_by_name(shapes, root):
    """SGD keeps nothing."""
    assert find_parts(shapes).parameters == root


@pytest.mark.parametrize("layers", [("attn/q/w", "attn/k/w", "attn/v/w", "out/w"), ("enc/w", "mu/w", "logvar/w")])
@pytest.mark.parametrize(
    ("moments", "parts"),
    [
        (("opt_state/0/mu/", "opt_state/0/nu/"), {"mu": "opt_state/0/mu", "nu": "opt_state/0/nu"}),
        (("m/", "v/"), {"m": "m", "v": "v"}),
        ((), {}),
    ],
)
def test_a_layer_may_have_the_name_of_a_moment(layers, moments, parts):
    """The values of an attention, the mean of an autoencoder."""
    parts_of = find_parts({f"{tree}{layer}": (4, 4) for tree in ("params/", *moments) for layer in layers})
    assert (parts_of.parameters, parts_of.without, parts_of.others) == ("params", (), {})
    assert parts_of.optimizer_state == parts


def test_a_number_of_the_optimizer_may_have_the_name_of_a_parameter():
    """Schedule-free Adam keeps its ``b1``, and a perceptron its first bias."""
    shapes = {"0/b1": (32,), "0/w1": (4, 32), "1/b1": (), "1/z/b1": (32,), "1/z/w1": (4, 32)}
    shapes |= {"1/opt_state/0/nu/b1": (32,), "1/opt_state/0/nu/w1": (4, 32)}
    assert find_parts(shapes).optimizer_state == {"b1": "1/b1", "nu": "1/opt_state/0/nu", "z": "1/z"}


@pytest.mark.parametrize(("kept", "others"), [(("mu/",), {}), (("mu/", "target/"), {"target_w": "target/w"})])
def test_a_layer_may_have_the_name_of_a_copy(kept, others):
    """A target network has no moments, and a tower that is called so has."""
    layers = ("source/w", "target/w") if len(kept) == 1 else ("w",)
    found = find_parts({f"{tree}{layer}": (4, 4) for tree in ("params/", *kept) for layer in layers})
    assert (found.parameters, found.without, found.optimizer_state, found.others) == (
        "params",
        (),
        {"mu": "mu"},
        others,
    )
