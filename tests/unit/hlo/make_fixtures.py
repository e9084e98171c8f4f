"""Write the fixtures again: `python -m tests.unit.hlo.make_fixtures cpu|tpu|gpu`, from the root of the repository.

Compiles the programs of `programs.py` with the installed jax and stores the text under
`fixtures/<target>-<jax version>-<program>.hlo`. `cpu` needs JAX_NUM_CPU_DEVICES=8, `tpu` the libtpu of `jax[tpu]`,
`gpu` the packages jax-cuda13-plugin and jax-cuda13-pjrt of the same version; neither needs the hardware. File names of
source locations are cut to their last part; nothing else is changed. The `.census` beside each text is checked by hand.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "fixtures"
_SOURCE = re.compile(r'(?<=")/[^"\s]*/(?=[^"/\s]+")')

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 150754820096 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""


def main(target: str) -> None:
    """Compile every program for `target` and store its text."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    devices = {"cpu": cpu_devices, "tpu": tpu_devices, "gpu": gpu_devices}[target]()
    import jax

    from tests.unit.hlo.programs import FIXTURES

    for name, lower in FIXTURES.items():
        text = _SOURCE.sub("", lower(devices).compile().as_text())
        (HERE / f"{target}-{jax.__version__}-{name}.hlo").write_text(text, encoding="utf-8")
        print(name, len(text))


def cpu_devices() -> Sequence[Any]:
    """Eight virtual devices of the host."""
    import jax

    return jax.devices()


ACCELERATORS = {
    "v4:2x2x1": "v4-8",
    "v5e:2x4": "v5litepod-8",
    "v5p:2x2x2": "v5p-16",
    "v6e:2x4": "v6e-8",
    "tpu7x:2x2x1": "tpu7x-8",
}
"""Topologies of eight devices, and the type of accelerator that libtpu asks for."""


def tpu_devices(topology: str = "v5e:2x4") -> Sequence[Any]:
    """The devices of a topology, compile-only."""
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": ACCELERATORS[topology],
        "TPU_WORKER_HOSTNAMES": "localhost",
    }
    from jax.experimental import topologies

    return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)


def gpu_devices() -> Sequence[Any]:
    """Eight H200s, compile-only."""
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    import jax._src.xla_bridge
    from jax.experimental import topologies

    jax._src.xla_bridge.discover_pjrt_plugins()
    description = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=H200, topology="1x1x8")
    return list(description.devices)


if __name__ == "__main__":
    main(sys.argv[1])
