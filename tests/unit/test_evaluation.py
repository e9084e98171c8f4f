"""Is an evaluation judged rightly: truth's totals, doubtful examples, and padding that weighs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from meshproof.contract import leaves, nest
from meshproof.observing.evaluations import evaluation_set
from reference_impl.evaluation import NO_CLASS, padded, totals
from reference_impl.truth import CNNTruth, FlaxGPTTruth, GPTTruth, MLPTruth, ScoredMLPTruth
from reference_impl.truth.rounding import exact

MLP = MLPTruth((5, 7, 6, 4), seed=3)
CNN = CNNTruth(size=4, channels=(2, 3, 4), classes=5, seed=2)
GPT = {"vocab": 11, "length": 3, "embed": 8, "heads": 2, "head_dim": 4, "mlp": 16, "blocks": 1, "dropout": 0.3}


@pytest.mark.parametrize("truth", [MLP, CNN, GPTTruth(**GPT), FlaxGPTTruth(**GPT)], ids=["mlp", "cnn", "gpt", "flax"])
def test_truths_totals_are_those_of_its_logits(truth):
    """Over batches of 6 and 2 examples, the summed cross-entropy and the right arg-maxes are those of eight logits, or
    of those of each token. Nothing is dropped."""
    batches = evaluation_set(truth.batches(2, 6))
    assert [len(batch["y"]) for batch in batches] == [6, 2]
    parameters = truth.initial_parameters()
    values = {path: exact(leaf) for path, leaf in leaves(parameters)}
    of_each = [truth.logits(values, batch["x"]).value for batch in batches]
    logits = np.concatenate([each.reshape(-1, each.shape[-1]) for each in of_each])
    labels = np.concatenate([batch["y"].ravel() for batch in batches])
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]
    seen = truth.evaluate(parameters, batches)
    assert seen.loss == pytest.approx(losses.sum(), rel=1e-12)
    assert 0 < seen.deviation < 1e-5 * seen.loss
    assert (seen.correct, seen.doubtful, seen.count) == ((logits.argmax(1) == labels).sum(), 0, len(labels))


def test_examples_between_two_classes_are_doubtful():
    """Where the last layer's columns are equal, so are the logits, and truth does not say which is likelier."""
    parameters = MLP.initial_parameters()
    for leaf in parameters["dense_2"].values():
        leaf[..., :] = leaf[..., :1]
    assert MLP.evaluate(parameters, MLP.batches(1, 6)).doubtful == 6


def test_a_step_has_the_accuracy_of_the_state_before_it():
    """As an evaluation has it; and it may be off by what is doubtful."""
    truth = ScoredMLPTruth(**vars(MLP))
    start, batches = truth.initial_parameters(), truth.batches(3, 6)
    trained = truth.train(start, batches)
    after = [{path: np.float32(leaf) for path, leaf in step.parameters.items()} for step in trained.value.steps]
    expected = [
        truth.evaluate(nest(held), [batch]) for held, batch in zip([dict(leaves(start)), *after], batches, strict=False)
    ]
    assert [step.metrics["accuracy"] for step in trained.value.steps] == [seen.correct / 6 for seen in expected]
    assert all(step.metrics["accuracy"] < 1e-6 for step in trained.rounding.steps)
    for leaf in start["dense_2"].values():
        leaf[..., :] = leaf[..., :1]
    assert truth.train(start, batches).rounding.steps[0].metrics["accuracy"] > 0.99


def test_padding_weighs_nothing():
    """The totals of a padded batch are those of its own examples."""
    [batch] = MLP.batches(1, 5)
    logits = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    filled = padded(batch, 8)
    assert filled["x"].shape == (8, 5)
    assert filled["y"].tolist() == [*batch["y"].tolist(), NO_CLASS, NO_CLASS, NO_CLASS]
    own, whole = totals(logits[:5], batch), totals(logits, filled)
    for name, (value, number) in own.items():
        assert (float(value), int(number)) == pytest.approx((float(whole[name][0]), 5))


def test_a_batch_that_is_too_large_is_refused():
    """Padding makes no batch smaller, and the error names both sizes."""
    with pytest.raises(ValueError, match="a batch of 6 examples does not fit into one of 4"):
        padded(MLP.batches(1, 6)[0], 4)
