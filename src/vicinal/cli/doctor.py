"""`vicinal doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys

from vicinal import __version__
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import AsJson

#: What each extra is for.
_USES = {
    "train": "the commands, reports and plots",
    "text": "texts: MiniLM and other checkpoints",
    "audio": "FLAC files, and WAV files of unusual kinds",
    "excel": "Excel workbooks",
    "boosting": "--model lightgbm, catboost and best",
    "timm": "networks of timm and their published weights",
    "integrations": "Lightning and torchmetrics",
    "export": "vicinal export",
    "scale": "--backend ray: compare, predict, evaluate",
    "remote": "paths such as s3://, gs://, hf:// and https://",
    "speed": "measuring millions of predictions faster",
}


@handle_errors
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has: versions, devices, cores, extras installed, and what is missing for what."""
    console = Console(as_json=as_json)
    machine = _machine()
    missing = {extra: [name for name in needed if not _is_installed(name)] for extra, needed in _extras().items()}
    console.event("result", {**machine, "missing": {extra: names for extra, names in missing.items() if names}})
    console.table("", ["", "this machine"], [[name, str(value)] for name, value in machine.items()], numbers=False)
    rows = [
        [f"vicinal[{extra}]", f"lacks {', '.join(names)}" if names else "installed", _USES[extra]]
        for extra, names in missing.items()
    ]
    console.table("", ["extra", "state", "for"], rows, numbers=False)
    if incomplete := [extra for extra, names in missing.items() if names]:
        console.say(f"to install what is missing: pip install 'vicinal[{','.join(incomplete)}]'")


def _machine() -> dict[str, object]:
    import torch

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    devices = ["CPU", *cuda, *(["Apple GPU (MPS)"] if torch.backends.mps.is_available() else [])]
    return {
        "vicinal": __version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "torch": torch.__version__,
        "numpy": importlib.metadata.version("numpy"),
        "scipy": importlib.metadata.version("scipy"),
        "devices": ", ".join(devices),
        "cores": os.cpu_count(),
        "threads of torch": torch.get_num_threads(),
        "named data sets": os.environ.get("VICINAL_DATA") or "not set: VICINAL_DATA names their folder",
    }


def _extras() -> dict[str, list[str]]:
    """Return the packages that each extra needs, as this installation declares them."""
    needed: dict[str, list[str]] = {extra: [] for extra in _USES}
    for requirement in importlib.metadata.requires("vicinal") or ():
        declared = re.match(r"([\w.-]+).*extra == .(\w+)", requirement)
        if declared and declared[2] in needed:
            needed[declared[2]].append(declared[1])
    return needed


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
