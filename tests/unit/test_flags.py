"""Flags of compilers: which ones are read, whom they concern, and what is said of one that does nothing."""

import pytest

from meshproof.targets.flags import concerns, flags_set, last_release


def test_flags_are_read_as_the_compiler_reads_them():
    """Names and values, of both variables; what writes files and what sets the host's devices is left out."""
    variables = {
        "XLA_FLAGS": "--xla_gpu_graph_level=0 '--xla_dump_to=a b' --xla_force_host_platform_device_count=8 --xla_x",
        "LIBTPU_INIT_ARGS": "--xla_tpu_a=false --megascale_port=1",
    }
    assert flags_set(variables) == {"xla_gpu_graph_level": "0", "xla_x": "true", "xla_tpu_a": "false"}
    assert flags_set({}) == {}


@pytest.mark.parametrize(
    ("flag", "kinds"),
    [("xla_gpu_x", ["gpu", "native"]), ("xla_tpu_x", ["native", "tpu"]), ("xla_x", ["cpu", "gpu", "native", "tpu"])],
)
def test_a_flag_of_another_compiler_is_not_judged(flag, kinds):
    """By its name. What the host's own accelerator is, its name does not tell."""
    assert [kind for kind in ("cpu", "gpu", "native", "tpu") if concerns(flag, kind)] == kinds


def test_the_last_release_with_a_flag_is_known():
    """Of one that was dropped, and of no other."""
    assert last_release("xla_gpu_enable_triton_softmax_fusion") == "0.4.38"
    assert last_release("xla_disable_hlo_passes") is None
