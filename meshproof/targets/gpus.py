"""What XLA's GPU compiler is told of a chip, in place of asking its driver."""

from __future__ import annotations

from meshproof.targets import Chip

CUDNN, RUNTIME = (9, 10, 0), (13, 0, 0)
"""Taken to be on the host: the releases of cuDNN and of the CUDA runtime."""

CUDNN_VERSION = CUDNN[0] * 10_000 + CUDNN[1] * 100 + CUDNN[2]
"""The same release as cuDNN itself spells it."""


def configuration(chip: Chip) -> str:
    """The text of ``stream_executor.GpuTargetConfigProto``; what every chip since Ampere has alike stands here."""
    told = chip.described
    major, minor = told["compute_capability"].split(".")
    extension = "ACCELERATED_FEATURES" if int(major) >= 9 else "NONE"
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {told["shared_memory_per_core"]}
  threads_per_core_limit: 2048
  core_count: {told["cores"]}
  fpus_per_core: {told["fpus_per_core"]}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {chip.memory_bandwidth:.0f}
  l2_cache_size: {told["l2_cache"]}
  clock_rate_ghz: {told["clock_rate_ghz"]}
  device_memory_size: {chip.memory}
  shared_memory_per_block_optin: {told["shared_memory_per_block_optin"]}
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ {_version(CUDNN)} }}
runtime_version {{ {_version(RUNTIME)} }}
device_description_str: "{chip.kind}"
"""


def _version(release: tuple[int, int, int]) -> str:
    major, minor, patch = release
    return f"major: {major} minor: {minor} patch: {patch}"
