"""The peer in PyTorch is the same model: its numbers are the truth's, and what is not the same is caught."""

import jax
import numpy as np
import pytest

from benchmarks.judges import Judges
from benchmarks.peers.gpt_case import find_case, numbers
from benchmarks.peers.handover import read_handover, write_handover
from benchmarks.peers.measure import AGREEMENT, measure
from benchmarks.peers.processes import PeerError, Side
from meshproof.cases import Case
from meshproof.contract import leaves
from meshproof.measures.numerics import judge, judge_loss
from meshproof.observing.state import host
from reference_impl.models import gpt as book
from reference_impl.modifiers.precision import MixedPrecision
from reference_impl.modifiers.rematerialisation import Rematerialised
from reference_impl.sizes.scaled import ONE, Scaled
from reference_impl.strategies import single_device
from reference_impl.truth import Adam

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[peers]'")

from benchmarks.peers import gpt, torch_side  # noqa: E402 - both need PyTorch
from benchmarks.peers.torch_side import TorchSide  # noqa: E402

STEPS = 5


@pytest.fixture(scope="module")
def truth():
    """The transformer of the suites under Adam."""
    return book.GPT().truth(Adam())


@pytest.fixture(scope="module")
def batches(truth):
    """The batches of a window, and the first again."""
    given = list(truth.batches(STEPS, 16))
    return [*given, given[0]]


@pytest.fixture(scope="module")
def reference(truth, batches):
    """What training on them gives in float64, and what float32 rounding explains."""
    return truth.train(truth.initial_parameters(), batches)


@pytest.fixture(scope="module")
def handover(truth, batches, tmp_path_factory):
    """The file that the peer starts from."""
    path = tmp_path_factory.mktemp("peers") / "start.npz"
    write_handover(path, dict(leaves(truth.initial_parameters())), batches)
    return path


def spec(**changed):
    """The peer of the suites' transformer."""
    return gpt.Spec(**numbers(find_case("tiny", "cpu")) | changed)


def eager(handover, spec):
    """The peer without compiling it."""
    side = TorchSide(handover, spec, "cpu")
    side.loss = side.model
    return side


def problems(reference, side, losses):
    """Which losses, and which parameters after a window and the untimed step, are not the truth's."""
    found = [
        str(verdict)
        for loss, is_, by in zip(losses, reference.value.steps, reference.rounding.steps, strict=True)
        if not (verdict := judge_loss(loss, is_.loss, by.loss)).passed
    ]
    last, rounding = reference.value.steps[STEPS - 1].parameters, reference.rounding.steps[STEPS - 1].parameters
    verdict = judge(side.parameters(), last, rounding, "parameters")
    return found, [] if verdict.passed else [str(verdict)]


def test_handover_holds_what_it_was_given(handover, truth, batches):
    """Parameters and batches come back as they were, in their order."""
    parameters, read = read_handover(handover)
    given = dict(leaves(truth.initial_parameters()))
    assert list(parameters) == list(given) and all(np.array_equal(parameters[path], given[path]) for path in given)
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(read, batches, strict=True) for name in "xy")


@pytest.mark.parametrize(
    "make", [eager, lambda handover, spec: TorchSide(handover, spec, "cpu")], ids=["eager", "compiled"]
)
def test_peer_is_the_truth(handover, reference, make):
    """From the same start and batches, losses and parameters are the truth's within what float32 rounding explains.

    And in the second window again: it starts where the first one did.
    """
    side = make(handover, spec())
    for _ in range(2):
        assert problems(reference, side, side.run()["losses"]) == ([], [])


def test_windows_are_alike_whatever_is_kept(handover):
    """Blocks that are computed anew give the same losses to the bit."""
    assert eager(handover, spec()).run()["losses"] == eager(handover, spec(rematerialised=True)).run()["losses"]


class Uncorrected(torch.optim.Optimizer):
    """Adam without its bias correction."""

    def __init__(self, parameters, lr, betas, eps):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        """One step of every parameter."""
        for group in self.param_groups:
            first, second = group["betas"]
            for leaf in group["params"]:
                state = self.state[leaf] or {"mu": torch.zeros_like(leaf), "nu": torch.zeros_like(leaf)}
                self.state[leaf] = state
                state["mu"].lerp_(leaf.grad, 1 - first)
                state["nu"].lerp_(leaf.grad.square(), 1 - second)
                leaf.sub_(group["lr"] * state["mu"] / (state["nu"].sqrt() + group["eps"]))


def adam(kind, **options):
    """Another optimizer, made as Adam is."""
    return lambda spec, model, fused: kind(
        model.parameters(), **{"lr": spec.learning_rate, "betas": (spec.b1, spec.b2), "eps": spec.eps} | options
    )


PLANTED = {
    "the exact GELU": (gpt.GPT, "activate", lambda self, z: gpt.gelu(z)),
    "ReLU": (gpt.GPT, "activate", lambda self, z: torch.relu(z)),
    "another epsilon": (gpt, "EPSILON", 1e-5),
    "attention to what comes": (gpt, "scaled_dot_product_attention", lambda q, k, v, is_causal: attend(q, k, v)),
    "no bias correction": (torch_side, "make_adam", adam(Uncorrected)),
    "weight decay": (torch_side, "make_adam", adam(torch.optim.AdamW)),
    "another learning rate": (torch_side, "make_adam", adam(torch.optim.Adam, lr=3.03e-4)),
    "another decay": (torch_side, "make_adam", adam(torch.optim.Adam, betas=(0.9, 0.99))),
}
attend = gpt.scaled_dot_product_attention


@pytest.mark.parametrize("name", PLANTED)
def test_another_model_is_noticed(handover, reference, monkeypatch, name):
    """A peer of another model or optimizer has other losses than the truth."""
    monkeypatch.setattr(*PLANTED[name])
    side = eager(handover, spec())
    losses, parameters = problems(reference, side, side.run()["losses"])
    assert losses and parameters


def test_another_dtype_is_noticed(handover, reference):
    """A peer that computes in bfloat16 where float32 is asked for has other losses than the truth."""
    side = eager(handover, spec(dtype="bfloat16"))
    assert problems(reference, side, side.run()["losses"])[0]


def test_rematerialised_peer_compiles(handover, reference):
    """As the largest size has it, in one graph; and its losses are the truth's."""
    side = TorchSide(handover, spec(rematerialised=True), "cpu")
    assert problems(reference, side, side.run()["losses"]) == ([], [])


@pytest.mark.parametrize("learning_rate", [3e-4, 1e-3, 0.0])
def test_mixed_precision_is_judged_as_the_book_is(tmp_path, learning_rate):
    """In bfloat16 the peer passes the judge that the book's own step must pass; with another learning rate not."""
    network = Rematerialised(MixedPrecision(book.GPT()))
    strategy = Scaled(single_device.PAGE, ONE, Adam(), network, batch_size=16)
    case = Case("peer", strategy, ONE, "cpu")
    given = list(strategy.batches(10))
    expected = Judges().of(case, [*given, given[0]], train=True)
    start = host(strategy.parameters(strategy.init(jax.random.key(0))))
    write_handover(tmp_path / "start.npz", start, [*given, given[0]])
    side = eager(tmp_path / "start.npz", gpt.Spec(**numbers(case) | {"learning_rate": learning_rate}))
    assert numbers(case)["dtype"] == "bfloat16" and numbers(case)["rematerialised"]
    assert (expected.problem(side.run()["losses"]) is None) is (learning_rate == 3e-4)


def test_both_are_measured_in_turn():
    """The whole run on a CPU: both take their windows, agree with the judge, and no speed is claimed."""
    said = []
    found = measure("tiny", "cpu", rounds=8, sessions=1, say=said.append)
    turns = [line.split(": ")[1].split()[0] for line in said if line.startswith("round")]
    assert turns == ["jax", "torch", "torch", "jax"] * 4
    assert found["measured"] == AGREEMENT and found["judge"]["name"] == "truth"
    for name in ("jax", "torch"):
        framework = found["frameworks"][name]
        assert len(framework["losses"]) == 11 and len(framework["rounds"][0]) == 8
        assert framework["mfu"] is None and framework["tokens_per_second"] > 0
    assert found["frameworks"]["torch"]["facts"]["versions"]["torch"] == torch.__version__


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has a CUDA device")
def test_pytorch_without_cuda_is_refused(handover):
    """Where JAX has an accelerator and PyTorch has none, nothing is measured on another device than was asked for."""
    side = Side("torch", TorchSide, handover, spec(), "native")
    with pytest.raises(PeerError, match=r"^torch failed at warm_up: --target native: PyTorch .* finds no CUDA device"):
        side.ask("warm_up")
    side.close()
    with pytest.raises(PeerError, match=r"^--target native: PyTorch .* finds no CUDA device, though JAX finds"):
        measure("tiny", "native", rounds=8, sessions=1, say=lambda line: None)


def test_compiling_within_a_window_is_noticed(handover):
    """A window in which something is compiled anew raises, and gives no time."""
    side = TorchSide(handover, spec(), "cpu")
    side.loss = torch.compile(side.model, backend="eager", fullgraph=True, dynamic=False)
    side.warm_up()
    side.window()
    side.batches = [[tokens[:8] for tokens in batch] for batch in side.batches]
    with pytest.raises(RuntimeError, match="recompile"):
        side.window()
