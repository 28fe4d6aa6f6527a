"""As a script: train one tiny cell, and print its digits and the CPU capability here and in a worker.

`python tests/portable_cell.py > tests/portable_digits.json` writes them again, after a change that alters the digits of
trainings.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vicinal._portable import cpu_capability, make_portable


@dataclass(frozen=True)
class Reporting:
    """A job that notes the CPU capability of its process."""

    folder: Path

    def result(self) -> dict[str, str] | None:
        path = self.folder / "cpu.json"
        return json.loads(path.read_text()) if path.exists() else None

    def run(self, *, progress: bool) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cpu.json").write_text(json.dumps(cpu_capability()))


if __name__ == "__main__":
    reason = make_portable()
    if reason is not None:
        raise SystemExit(reason)

    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import TensorDataset

    from vicinal import Mixup, fit
    from vicinal.models import build
    from vicinal.runs.scheduler import Pool, run_jobs
    from vicinal.training import FitConfig

    torch.set_num_threads(1)
    pixels, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    grey = (pixels.float() / 16).view(-1, 8, 8).repeat_interleave(2, 1).repeat_interleave(2, 2)
    images = torch.stack([grey, 1 - grey, grey.square()], 1)
    train, val = (TensorDataset(images[part], labels[part]) for part in (slice(192), slice(192, 256)))
    torch.manual_seed(0)
    model = build("preactresnet10", kind="image", n_classes=10, input_shape=(3, 16, 16), width=8, final_norm=False)
    config = FitConfig(
        epochs=2,
        batch_size=64,
        optimizer="sgd",
        lr=0.05,
        nesterov=True,
        weight_decay=5e-4,
        schedule="cosine",
        channels_last=True,
        trackers=(),
    )
    result = fit(model, Mixup(alpha=1.0), train, val, config=config, progress=False)
    assert result.logits is not None
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    with TemporaryDirectory() as folder:
        workers, failures = run_jobs({"a": Reporting(Path(folder) / "a")}, Pool(workers=2), progress=False)
    digits = {
        "torch": torch.__version__.partition("+")[0],
        "cpu": cpu_capability(),
        "worker": workers.get("a") or failures,
        "losses": [line["loss"] for line in result.history],
        "logits": result.logits[:3].tolist(),
        "weights": digest.hexdigest(),
    }
    sys.stdout.write(json.dumps(digits, indent=1) + "\n")
