"""The faults: which versions have them, who says so, and what shows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regression:
    """A fault of the versions that ``affected`` describes, as ``when`` does in a file of expectations.

    ``clause`` is violated by the cases of the book that ``select`` chooses, as pytest's ``-k`` does. Without a choice
    no case of the book meets the fault, which is no silent one: the trainer of its name in ``trainers`` does, and
    ``shown`` is part of what is said of it then.
    """

    name: str
    seen: str
    affected: dict[str, str]
    bad: str
    good: str
    url: str
    silent: bool = False
    clause: str = "API-1"
    select: str = ""
    shown: str = ""

    @property
    def run(self) -> tuple[str, str]:
        """What the suites are to judge, and by which choice of tests: the trainers all in one run."""
        if self.select:
            return "reference_impl", self.select
        return "tests.regressions.trainers", "test_interfaces_exist_and_warn_of_nothing"


KNOWN = (
    Regression(
        "out_sharding_ignored",
        "nnx.Param(…, out_sharding=…) annotates nothing: parameters and optimizer state are whole on every device",
        affected={"flax": "<0.12.4"},
        bad="jax==0.9.0,flax==0.12.3",
        good="jax==0.9.0,flax==0.12.4",
        url="https://github.com/google/flax/issues/5248",
        silent=True,
        clause="SHD-6",
        select="fsdp-nnx-mlp+out_sharding",
    ),
    Regression(
        "replicated_copies_lie_otherwise",
        "what flax.jax_utils.replicate makes lies otherwise than what pmap returns: the second step compiles again",
        affected={"jax": ">=0.8,<0.10", "flax": "<0.12.7"},
        bad="jax==0.9.2,flax==0.12.6",
        good="jax==0.10.0,flax==0.12.7",
        url="https://docs.jax.dev/en/latest/migrate_pmap.html",
        silent=True,
        clause="CMP-1",
        select="data_parallel_pmap-linen-mlp and compiles_once",
    ),
    Regression(
        "barriers_are_dropped",
        "XLA:CPU drops optimization barriers before it schedules: rematerialisation spares no memory",
        affected={"jaxlib": "<0.11.1"},
        bad="jax==0.11.0,flax==0.12.8",
        good="jax==0.11.1,flax==0.12.9",
        url="https://github.com/openxla/xla/issues/20440",
        silent=True,
        clause="MEM-6",
        select="fsdp-jax-gpt+remat and saves_memory",
    ),
    Regression(
        "nnx_jit_passes_what_is_gone",
        "nnx.jit hands jax.jit an argument that it has no more: no NNX trainer runs",
        affected={"jax": ">=0.8.2", "flax": "<0.12.2"},
        bad="jax==0.8.2,flax==0.12.1",
        good="jax==0.8.2,flax==0.12.2",
        url="https://github.com/google/flax/issues/5148",
        clause="NUM-1",
        select="single_device-nnx-mlp and single_device_equals_truth",
    ),
    Regression(
        "static_arguments_have_shardings",
        "nnx.jit wants in_shardings also of static arguments",
        affected={"flax": "<0.12.1"},
        bad="jax==0.8.0,flax==0.12.0",
        good="jax==0.8.1,flax==0.12.1",
        url="https://github.com/google/flax/issues/4989",
        shown="arity mismatch",
    ),
    Regression(
        "with_mesh_is_no_mesh",
        "annotated variables are not made in `with mesh:`, only under jax.set_mesh",
        affected={"flax": ">=0.12.1"},
        bad="jax==0.8.1,flax==0.12.1",
        good="jax==0.8.1,flax==0.12.0",
        url="https://github.com/google/flax/pull/5070",
        shown="mesh",
    ),
    Regression(
        "convolution_gradients_refuse_a_mesh",
        "vmap of the gradient of a convolution raises where its operands lie on a mesh",
        affected={"jax": "<0.8"},
        bad="jax==0.7.2,flax==0.12.0",
        good="jax==0.8.0,flax==0.12.0",
        url="https://github.com/jax-ml/jax/issues/32157",
        shown="NotImplementedError",
    ),
    Regression(
        "pmap_refuses_one_device",
        "pmap, jit of shard_map since then, refuses what is committed to one device",
        affected={"jax": ">=0.8"},
        bad="jax==0.8.0,flax==0.12.0",
        good="jax==0.7.2,flax==0.12.0",
        url="https://docs.jax.dev/en/latest/migrate_pmap.html",
        shown="ValueError",
    ),
    Regression(
        "meshes_are_explicit",
        "the axes of jax.make_mesh are explicit unless it is told otherwise, as JAX 0.8.1 and later announce",
        affected={"jax": ">=0.8.1"},
        bad="jax==0.9.0,flax==0.12.4",
        good="jax==0.8.0,flax==0.12.0",
        url="https://github.com/patrick-kidger/equinox/pull/1175",
        shown="Explicit",
    ),
    Regression(
        "in_specs_must_match",
        "on explicit axes shard_map no longer lays its arguments out as in_specs say, but raises",
        affected={"jax": ">=0.9.1"},
        bad="jax==0.9.1,flax==0.12.4",
        good="jax==0.9.0,flax==0.12.4",
        url="https://github.com/marin-community/marin/issues/4455",
        shown="does not match the specs of the input",
    ),
    Regression(
        "high_ranks_kill_the_process",
        "XLA:CPU dies of a product of rank 8 that is summed",
        affected={"jaxlib": ">=0.10.2,<0.11.1"},
        bad="jax==0.10.2,flax==0.12.8",
        good="jax==0.10.1,flax==0.12.8",
        url="https://github.com/jax-ml/jax/issues/39257",
        shown="SIGSEGV",
    ),
    Regression(
        "reshape_drops_an_axis",
        "a reshape forgets an explicit mesh axis of size 1, and what follows raises for it",
        affected={"jax": "==0.11.0"},
        bad="jax==0.11.0,flax==0.12.8",
        good="jax==0.11.1,flax==0.12.9",
        url="https://github.com/jax-ml/jax/issues/39309",
        shown="did not match the sharding provided",
    ),
    Regression(
        "batch_dimensions_must_lie_alike",
        "on explicit axes an einsum raises where only one operand's batch dimension is split",
        affected={"jax": ">=0.11.1"},
        bad="jax==0.11.1,flax==0.12.9",
        good="jax==0.11.0,flax==0.12.8",
        url="https://github.com/marin-community/marin/pull/8716",
        shown="batch dimensions to have the same sharding",
    ),
)
