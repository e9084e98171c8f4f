"""Keras on JAX under ``keras.distribution``: ``pytest suites/ --impl docs.foreign.keras_distribution``.

The trainer is Keras's own: its layers, its losses, its optimizer, and the function that its ``fit`` jits. A state is
what that function takes: trainable and other variables, those of the optimizer, and those of the metrics.
"""

import os
from contextlib import nullcontext
from functools import cached_property

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from keras.src.backend.jax.trainer import _distribute_data

from meshproof.contract import Communication, Contract, leaves, nest

BATCH, WIDTH, HIDDEN, OUT = 64, 16, 32, 8


class Step:
    """The function that ``fit`` jits. It reports the mean loss since a reset of the metrics: here at every step."""

    def __init__(self, trainer):
        self.trainer = trainer

    def given(self, state, batch):
        metrics = [jax.device_put(np.zeros(value.shape, value.dtype), value.sharding) for value in state[3]]
        return (*state[:3], metrics), (batch["x"], batch["y"])

    def __call__(self, state, batch):
        with self.trainer.scope():
            logs, state = self.trainer.model_and_step[1](*self.given(state, batch))
        return state, logs

    def lower(self, state, batch):
        with self.trainer.scope():
            return self.trainer.model_and_step[1].lower(*self.given(state, batch))


class Trainer:
    """One model, distributed or not."""

    framework, model = "keras", "mlp"

    def __init__(self, name="single_device", mesh_axes=None, contract=None):
        self.name, self.contract = name, contract
        self.mesh_axes = mesh_axes or {"batch": 1}
        self.train_step = Step(self)

    @property
    def mesh(self):
        return Mesh(np.array(jax.devices()[: self.size]).reshape(*self.mesh_axes.values()), tuple(self.mesh_axes))

    @property
    def size(self):
        return int(np.prod(list(self.mesh_axes.values())))

    @cached_property
    def distribution(self):
        devices = keras.distribution.list_devices()[: self.size]
        mesh = keras.distribution.DeviceMesh(tuple(self.mesh_axes.values()), list(self.mesh_axes), devices)
        if "model" not in self.mesh_axes:
            return keras.distribution.DataParallel(mesh)
        layout = keras.distribution.LayoutMap(mesh)
        layout["mlp/hidden/kernel"], layout["mlp/hidden/bias"] = (None, "model"), ("model",)
        layout["mlp/out/kernel"] = ("model", None)
        return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")

    def scope(self):
        return self.distribution.scope() if self.size > 1 else nullcontext()

    def build(self):
        """A compiled model whose variables are laid out."""
        with self.scope():
            keras.utils.set_random_seed(0)
            network = [
                keras.Input((WIDTH,), batch_size=BATCH, name="x"),
                keras.layers.Dense(HIDDEN, "tanh", name="hidden"),
                keras.layers.Dense(OUT, name="out"),
            ]
            model = keras.Sequential(network, name="mlp")
            model.compile(keras.optimizers.SGD(0.1, momentum=0.9, name="sgd"), keras.losses.MeanSquaredError())
            model.optimizer.build(model.trainable_variables)
            return model

    @cached_property
    def model_and_step(self):
        """A model, and the function that its ``fit`` would jit and loop over."""
        model = self.build()
        model._make_function = lambda step: step
        with self.scope():
            model.make_train_function()
            model._symbolic_build(data_batch=(np.zeros((BATCH, WIDTH)), np.zeros((BATCH, OUT))))
        return model, model.train_function

    def init(self, key):
        model = self.build()
        with self.scope():
            model._symbolic_build(data_batch=(np.zeros((BATCH, WIDTH)), np.zeros((BATCH, OUT))))
        return model._get_jax_state(True, True, True, True)

    def load(self, parameters):
        state, values = self.init(None), dict(leaves(parameters))
        own = self.parameters(state)
        placed = {path: jax.device_put(values[path], array.sharding) for path, array in leaves(own)}
        return ([placed[variable.path] for variable in self.model_and_step[0].trainable_variables], *state[1:])

    def batches(self, count):
        draws = np.random.default_rng(0)
        return [
            {
                "x": draws.normal(size=(BATCH, WIDTH)).astype(np.float32),
                "y": draws.normal(size=(BATCH, OUT)).astype(np.float32),
            }
            for _ in range(count)
        ]

    def shard_batch(self, batch):
        with self.scope():
            return _distribute_data(dict(batch))

    def parameters(self, state):
        model = self.model_and_step[0]
        return nest({variable.path: array for variable, array in zip(model.trainable_variables, state[0], strict=True)})

    def optimizer_state(self, state):
        optimizer = self.model_and_step[0].optimizer
        return nest({variable.path: array for variable, array in zip(optimizer.variables, state[2], strict=True)})

    def single_device(self, dtype):
        return Trainer()


def strategies():
    return [
        Trainer("data_parallel", {"batch": 8}, DATA_PARALLEL),
        Trainer("model_parallel", {"batch": 2, "model": 4}, MODEL_PARALLEL),
    ]


WHOLE, ROWS, HALVES = PartitionSpec(), PartitionSpec("batch"), PartitionSpec(None, "model")
LOSS = Communication("all-reduce", ("batch",), "metrics", 4)
DATA_PARALLEL = Contract(
    parameters={"*": WHOLE},
    gradients={"*": WHOLE},
    optimizer_state={"*": WHOLE},
    batch={"*": ROWS},
    step=(
        Communication("all-reduce", ("batch",), "gradients", 4 * (WIDTH * HIDDEN + HIDDEN + HIDDEN * OUT + OUT)),
        LOSS,
    ),
)
LAYOUT = {
    "*hidden/kernel": HALVES,
    "*hidden/bias": PartitionSpec("model"),
    "*out/kernel": PartitionSpec("model"),
    "*out/bias": WHOLE,
}
MODEL_PARALLEL = Contract(
    parameters=LAYOUT,
    gradients=LAYOUT,
    optimizer_state={
        "*hidden_kernel_momentum": HALVES,
        "*hidden_bias_momentum": PartitionSpec("model"),
        "*out_kernel_momentum": PartitionSpec("model"),
        "*": WHOLE,
    },
    batch={"*": ROWS},
    step=(
        Communication("all-reduce", ("model",), "activations", 4 * (BATCH // 2) * OUT),
        Communication("all-reduce", ("batch",), "gradients", WIDTH * HIDDEN + HIDDEN + HIDDEN * OUT + 4 * OUT),
        LOSS,
    ),
)
