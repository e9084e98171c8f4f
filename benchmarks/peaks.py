"""The dense peak of each device kind, in floating-point operations per second, and where it is published.

Dense: datasheets that print figures with sparsity are halved. A kind or dtype that is not here has no utilisation.
"""

from __future__ import annotations

from typing import NamedTuple


class Peak(NamedTuple):
    """Operations per second of one device as JAX counts devices, and the source."""

    flops: float
    source: str


H100 = "NVIDIA H100 datasheet (SXM5): 1,979 TFLOP/s bfloat16 with sparsity, 67 TFLOP/s float32"
V5P = "Google Cloud documentation, TPU v5p: 459 TFLOP/s per chip; JAX names it either way"
H200 = "NVIDIA H200 datasheet (SXM): 1,979 TFLOP/s bfloat16 with sparsity, 67 TFLOP/s float32"
A100 = "NVIDIA A100 datasheet: 312 TFLOP/s bfloat16, 19.5 TFLOP/s float32"

PEAKS: dict[tuple[str, str], Peak] = {
    ("NVIDIA H200", "bfloat16"): Peak(989e12, H200),
    ("NVIDIA H200", "float32"): Peak(67e12, H200),
    ("NVIDIA H100 80GB HBM3", "bfloat16"): Peak(989e12, H100),
    ("NVIDIA H100 80GB HBM3", "float32"): Peak(67e12, H100),
    ("NVIDIA A100-SXM4-80GB", "bfloat16"): Peak(312e12, A100),
    ("NVIDIA A100-SXM4-80GB", "float32"): Peak(19.5e12, A100),
    ("NVIDIA A100-SXM4-40GB", "bfloat16"): Peak(312e12, A100),
    ("NVIDIA A100-SXM4-40GB", "float32"): Peak(19.5e12, A100),
    ("TPU v4", "bfloat16"): Peak(275e12, "Google Cloud documentation, TPU v4: 275 TFLOP/s per chip"),
    ("TPU v5 lite", "bfloat16"): Peak(197e12, "Google Cloud documentation, TPU v5e: 197 TFLOP/s per chip"),
    ("TPU v5", "bfloat16"): Peak(459e12, V5P),
    ("TPU v5p", "bfloat16"): Peak(459e12, V5P),
    ("TPU v6 lite", "bfloat16"): Peak(918e12, "Google Cloud documentation, TPU v6e: 918 TFLOP/s per chip"),
}
"""By ``device_kind`` and the dtype of the products; float32 is at float32 precision, not TF32."""

FORMULA = "model FLOPs of a step / (its seconds × devices of the mesh × dense peak of a device)"


def utilisation(model_flops: float | None, seconds: float, devices: int, kind: str, dtype: str) -> float | None:
    """The model FLOPs utilisation (MFU) of a step; ``None`` if FLOPs or peak are unknown."""
    peak = PEAKS.get((kind, dtype))
    return None if peak is None or model_flops is None else model_flops / (seconds * devices * peak.flops)
