"""Values that are no numbers yet: ``pytest suites/ --impl tests.healthy.plateaus``.

The best loss so far begins at infinity, and the accuracy of a class that a batch lacks is 0/0.
"""

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from .trainer import LOSS, WHOLE, Functional, moves

CLASSES = 8


class Plateau(Functional):
    """Lowers its rate where the mean loss of five steps stops to fall, and reports the accuracy of every class."""

    name = "reduce_on_plateau"
    promises = {"auxiliary": WHOLE}
    falls = contrib.reduce_on_plateau(patience=1, accumulation_size=5)
    forward_moves = (LOSS,)
    step_moves = (
        moves("all-reduce", "gradients", *Functional.shapes.values()),
        LOSS,
        *[moves("all-reduce", "metrics", (CLASSES,))] * 2,
    )

    def batch(self, draws):
        """No row is of the last class."""
        return {"x": draws.normal(size=(64, 16)), "y": draws.integers(0, CLASSES - 1, size=64)}

    def mean_loss(self, w, batch):
        """A cross entropy."""
        return optax.softmax_cross_entropy_with_integer_labels(self.logits(w, batch), batch["y"]).mean()

    def logits(self, w, batch):
        """Of one hidden layer."""
        return jnp.tanh(batch["x"] @ w["hidden"]) @ w["out"]

    def start(self, parameters):
        """No loss is known."""
        return super().start(parameters) | {"auxiliary": self.falls.init(parameters)}

    def update(self, state, batch):
        """One step, and the rate of the next one."""
        w = state["parameters"]
        value, gradients = self.value_and_gradients(w, batch)
        updates, optimizer = self.optimizer.update(gradients, state["optimizer"], w)
        updates, plateau = self.falls.update(updates, state["auxiliary"], value=self.told(value, batch))
        classes = jax.nn.one_hot(batch["y"], CLASSES)
        hit = (self.logits(w, batch).argmax(-1) == batch["y"]) @ classes
        return {"parameters": optax.apply_updates(w, updates), "optimizer": optimizer, "auxiliary": plateau}, {
            "loss": value,
            "class_accuracy": hit / self.counted(classes),
        }

    def told(self, value, batch):
        """The loss of the step."""
        return value

    def counted(self, classes):
        """The rows of each class."""
        return classes.sum(0)

    def auxiliary(self, state):
        """By name."""
        return state["auxiliary"]._asdict()


def strategies():
    """One."""
    return [Plateau()]
