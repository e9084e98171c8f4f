"""A time is saved only if the step is right: every fault that a window can have is planted."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import jax
import pytest

from meshproof.cases import Case

from .compilation import Compilation
from .window import Window, WindowError

ROOT = Path(__file__).parents[1]
SMALL = """
from reference_impl.forms.annotated import JaxForm
from reference_impl.models.mlp import MLP
from reference_impl.strategies import single_device
from reference_impl.truth import MLPTruth, Momentum

class Detuned(JaxForm):
    @property
    def truth(self):
        return MLPTruth(self.network.widths, self.network.criterion, Momentum(learning_rate=0.5))

def strategies():
    for form, variant in ((JaxForm, "right"), (Detuned, "wrong")):
        yield form(single_device.PAGE, {"data": 1}, Momentum(), MLP(widths=(16, 8, 16, 4)), variant=variant)
"""
"""An implementation with a right strategy, and one that does not train as its truth says."""


class Trainer:
    """The least that can be timed: the state is one number, and so is the loss."""

    name, framework, model = "least", "jax", "number"

    def __init__(self, step, jit=lambda step: jax.jit(step, donate_argnums=0)):
        self.step, self.jit = jit(step), jit

    def init(self, key):
        """The state."""
        return jax.random.uniform(key)

    def batches(self, steps):
        """The batches."""
        return [{"x": float(i)} for i in range(steps)]

    def train_step(self, state, batch):
        """One step."""
        state, loss = self.step(state, batch["x"])
        return state, {"loss": loss}


class Unblocked(Window):
    """Windows that do not wait for their work."""

    def wait(self, results):
        """Return at once."""
        return results


def window(trainer):
    """The window of a trainer."""
    return Window(Case("least-jax-number@data=1", trainer, {"data": 1}, "cpu"))


def measure(windows):
    """One window as it is timed."""
    windows.run(*windows.set_up()[0])
    windows.check()


def test_right_window_is_not_faulty():
    """A step that is right and compiles once can be measured any number of times."""
    right = window(Trainer(lambda state, x: (state * 0.9, state + x)))
    right.warm_up()
    measure(right)
    measure(right)
    assert right.judge.name == "the other windows"
    assert right.losses == right.judge.seen[0]


def test_endless_compilation_is_faulty():
    """A step that compiles in every window is never measured."""
    fresh = Trainer(None, jit=lambda step: lambda state, x: jax.jit(lambda s: (s * 0.9, s + x))(state))
    with pytest.raises(WindowError, match=r"still compiles in window 5: .*backend_compile"):
        window(fresh).warm_up()


def test_compilation_while_measured_is_faulty():
    """A window that compiled after warming up is refused."""
    late = window(Trainer(lambda state, x: (state * 0.9, state + x)))
    late.warm_up()
    late.events = ["backend_compile"]
    with pytest.raises(WindowError, match="compiled while it was timed: backend_compile"):
        measure(late)


def test_unblocked_window_is_faulty():
    """A window that was not waited for is refused: its time is that of enqueuing the work."""
    step = jax.jit(lambda state, x: (state @ state / 512, state.mean() + x))
    slow = Unblocked(window(Trainer(None, jit=lambda _: step)).case)
    with (
        jax.default_device(jax.devices("cpu")[0]),  # a GPU would be done by then
        pytest.raises(WindowError, match=r"was not waited for: \d+ arrays are still being computed"),
    ):
        slow.run(jax.block_until_ready(jax.numpy.ones((1024, 1024))))
        slow.check()


def test_non_finite_state_is_faulty():
    """A state that is not finite is refused, though every step ran."""
    with pytest.raises(WindowError, match="loss 3 is inf"):
        window(Trainer(lambda state, x: (state * 1e38, state))).warm_up()


def test_drifting_state_is_faulty():
    """Windows from one start that end in different states are refused."""
    calls = count()
    drifting = Trainer(None, jit=lambda step: lambda state, x: (state, state + next(calls)))
    with pytest.raises(WindowError, match="of another window from the same start"):
        window(drifting).warm_up()


def test_program_that_changes_is_faulty():
    """A step of which every compilation is another program has no compile time."""
    traced = count()

    def step(state, batch):
        return state * 0.9, {"loss": sum((state**n for n in range(next(traced))), batch["x"])}

    changing = Trainer(None, jit=lambda step: step)
    changing.train_step = jax.jit(step)
    compilation = Compilation(window(changing), "toy", check=lambda *_: None)
    compilation.compiled, compilation.cached = [], []
    compilation.run()
    compilation.check()
    compilation.forget()
    compilation.run()
    with pytest.raises(WindowError, match=r"least-jax-number@data=1: compiled again, its facts are .*, not "):
        compilation.check()


def test_faulty_time_is_not_saved(tmp_path):
    """The time of a strategy that does not train as its truth says fails and is not saved; that of a right one is."""
    (tmp_path / "small.py").write_text(SMALL, encoding="utf-8")
    saved = tmp_path / "times.json"
    run = pytest_benchmarks(tmp_path, "-k", "test_step_time", "--impl", "small", "--benchmark-json", str(saved))
    assert run.returncode == 1, run.stdout + run.stderr
    assert "WindowError: single_device-jax-mlp+wrong@data=1" in run.stdout
    times = json.loads(saved.read_text(encoding="utf-8"))["benchmarks"]
    assert [time["name"] for time in times] == ["test_step_time[single_device-jax-mlp+right@data=1]"]
    assert times[0]["extra_info"]["judged_by"] == "truth"


def test_benchmarks_refuse_xdist(tmp_path):
    """Under xdist, where nothing would be timed, the run ends with an error that says so."""
    run = pytest_benchmarks(tmp_path, "-n", "2")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "nothing would be timed" in run.stderr


def pytest_benchmarks(path, *arguments):
    """Run the benchmarks in a process of their own that finds modules in ``path``; this one may hold the GPU."""
    command = f"import sys; sys.path.insert(0, {str(path)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", command, "benchmarks/", "--target", "cpu", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
