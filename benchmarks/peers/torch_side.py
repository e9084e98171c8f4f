"""PyTorch's side of a comparison: windows as in `benchmarks.window`, of the peer under ``torch.compile``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .gpt import GPT, Spec, make_adam
from .handover import read_handover
from .processes import PeerError


def device_of(target: str) -> torch.device:
    """The peer's device. Raises `PeerError` if ``target`` is native and PyTorch finds no CUDA device."""
    if target == "native" and not torch.cuda.is_available():
        raise PeerError(
            f"--target native: PyTorch {torch.__version__} finds no CUDA device, though JAX finds an accelerator; "
            "install a torch that is built for this host's CUDA driver"
        )
    return torch.device("cuda" if target == "native" else "cpu")


class TorchSide:
    """The peer, with start values and batches from the file ``handover``. Raises what `device_of` raises."""

    def __init__(self, handover: Path, spec: Spec, target: str) -> None:
        self.device = device_of(target)
        torch.set_float32_matmul_precision("highest")
        self.start, batches = read_handover(handover)
        self.batches = [
            [torch.tensor(batch[name], dtype=torch.int64, device=self.device) for name in "xy"] for batch in batches
        ]
        self.model = GPT(spec, self.start).to(self.device)
        self.optimizer = make_adam(spec, self.model, fused=self.device.type == "cuda")
        self.loss = torch.compile(self.model, fullgraph=True, dynamic=False)

    def warm_up(self) -> None:
        """Compile in a first window; raises if a second one compiles anything."""
        self.run()
        self.window()

    def window(self) -> dict[str, Any]:
        """The seconds of a step, the losses, and that of the state left behind. Raises if anything is compiled."""
        with torch.compiler.set_stance("fail_on_recompile"):
            return self.run()

    def run(self) -> dict[str, Any]:
        """A window, from the start values and zero moments."""
        self.reset()
        *batches, last = self.batches
        losses = []
        self.wait()
        start = time.perf_counter()
        for x_BxT, y_BxT in batches:
            loss = self.loss(x_BxT, y_BxT)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        self.wait()
        seconds = (time.perf_counter() - start) / len(batches)
        losses.append(self.loss(*last).detach())
        return {"seconds": seconds, "losses": [float(loss) for loss in losses]}

    @torch.no_grad()
    def reset(self) -> None:
        """Reset to the start values, and moments to zero if there are any yet."""
        for path, leaf in self.model.leaves.items():
            leaf.copy_(torch.from_numpy(self.start[path]))
        for moments in self.optimizer.state.values():
            for moment in moments.values():
                moment.zero_()

    def wait(self) -> None:
        """Wait until a CUDA device has finished; a CPU always has."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def parameters(self) -> dict[str, np.ndarray]:
        """The current parameters, by path."""
        return {path: leaf.detach().cpu().numpy() for path, leaf in self.model.leaves.items()}

    def facts(self) -> dict[str, Any]:
        """Versions, the device's name, and the most bytes that PyTorch held there; ``None`` on a CPU."""
        cuda = self.device.type == "cuda"
        return {
            "versions": {
                "torch": torch.__version__,
                "torch's CUDA": torch.version.cuda,
                "torch's cuDNN": torch.backends.cudnn.version(),
            },
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        }
