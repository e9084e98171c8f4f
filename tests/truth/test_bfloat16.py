"""Is the bfloat16 bound honest and sharp: training with every rounding that bfloat16 may make stays within it."""

import ml_dtypes
import numpy as np
import pytest

from meshproof.contract import Step, Trajectory, leaves
from meshproof.measures.numerics import VACUOUS_IN, judge_trajectory
from reference_impl.truth import MLPTruth
from reference_impl.truth.bfloat16 import narrow
from reference_impl.truth.rounding import exact

F32 = np.float32
TRUTH = MLPTruth((784, 128, 10)).in_bfloat16()


def kept_in(dtype):
    """Rounding to a format, held in float32."""
    return lambda value: value.astype(dtype).astype(F32)


BF16, FLOAT8 = kept_in(ml_dtypes.bfloat16), kept_in(ml_dtypes.float8_e4m3fn)


def once(terms, keep):
    """A sum in float32, rounded at the end."""
    return keep(terms.sum(0))


def always(terms, keep):
    """A sum of which every partial sum is rounded."""
    total = terms[0]
    for term in terms[1:]:
        total = keep(total + term)
    return total


def loss_and_gradients(parameters, batch, keep, add):
    """The MLP written anew: what is kept between operations is rounded, what is a loss is float32."""
    depth = len(parameters) // 2
    used, h = {path: keep(value) for path, value in parameters.items()}, [keep(batch["x"])]
    for i in range(depth):
        z = keep(keep(h[-1] @ used[f"dense_{i}/kernel"]) + used[f"dense_{i}/bias"])
        h.append(np.maximum(z, 0) if i < depth - 1 else z)
    logits, rows = h.pop(), np.arange(len(batch["y"]))
    exponential = np.exp(logits - logits.max(1, keepdims=True))
    p = exponential / exponential.sum(1, keepdims=True)
    loss = -np.log(p[rows, batch["y"]]).mean()
    p[rows, batch["y"]] -= 1
    dz, gradients = keep(p / F32(len(rows))), {}
    for i in reversed(range(depth)):
        gradients |= {f"dense_{i}/kernel": keep(h[i].T @ dz), f"dense_{i}/bias": add(dz, keep)}
        dz = keep(dz @ used[f"dense_{i}/kernel"].T) * (h[i] > 0) if i else None
    return loss, gradients


def trained(keep, add):
    """The verdicts on three steps of SGD with momentum on float32 parameters."""
    parameters = dict(leaves(TRUTH.initial_parameters()))
    batches = TRUTH.batches(3, 64)
    momentum, steps, first = dict.fromkeys(parameters, F32(0)), [], None
    for batch in batches:
        loss, gradients = loss_and_gradients(parameters, batch, keep, add)
        first = first or gradients
        momentum = {path: F32(TRUTH.optimizer.decay) * momentum[path] + gradients[path] for path in parameters}
        parameters = {p: value - F32(TRUTH.optimizer.learning_rate) * momentum[p] for p, value in parameters.items()}
        steps.append(Step(loss, parameters, {f"momentum/{path}": value for path, value in momentum.items()}))
    reference = TRUTH.train(TRUTH.initial_parameters(), batches)
    return judge_trajectory(Trajectory(first, tuple(steps)), reference, VACUOUS_IN["bfloat16"])


@pytest.mark.parametrize("add", [once, always])
def test_bfloat16_stays_within_its_bound(add):
    """Half of what is allowed is never reached, whether sums are rounded once or always, and a tenth of it is used."""
    verdicts = trained(BF16, add)
    assert all(verdict.passed and verdict.margin < 1 / 2 for verdict in verdicts), verdicts
    assert verdicts[0].margin > 1 / 10


def test_float8_does_not():
    """Four digits less are beyond the bound already in the first gradients."""
    gradients, *_ = trained(FLOAT8, once)
    assert "dense_1/kernel" in [record.path for record in gradients.failures]


def test_float32_is_told_apart():
    """What never was in bfloat16 uses less than a thousandth of the bound."""
    gradients, *_ = trained(lambda value: value, once)
    assert gradients.margin < 1e-3


def test_a_cast_errs_by_what_its_variance_says():
    """Over all mantissas the root mean square of the error is √½ of the deviation, which is that of the worst one."""
    values = np.random.default_rng(0).uniform(1, 2, 100_000).astype(F32)
    drawn = np.sqrt(np.mean(((BF16(values) - values) / values) ** 2))
    allowed = np.sqrt(np.mean(narrow(exact(values)).variance / values.astype(np.float64) ** 2))
    assert allowed == pytest.approx(2.0**-8 / np.sqrt(3), rel=1e-6)
    assert 0.6 < drawn / allowed < 0.8


@pytest.mark.parametrize("mix", [lambda a, b: a @ b, lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a + 1.0])
def test_formats_do_not_mix(mix):
    """A bfloat16 number with a float32 one is an error, as it is in JAX under strict promotion."""
    one = exact(np.ones((2, 2)))
    with pytest.raises(TypeError, match=r"bfloat16 mixed with (Rounded|float)"):
        mix(narrow(one), one)
