"""What a command reads, checked by name before torch is imported, which takes seconds."""

from __future__ import annotations

from pathlib import Path

from vicinal._checks import nearest_names
from vicinal._remote import as_path, is_remote, local_path

#: What every run has. `vicinal.runs.layout` lists all names, and costs the import of torch.
CONFIG = "config.json"
#: What a finished one has besides: a folder with one of these is a run, of which a file may be gone.
OF_A_RUN = (CONFIG, "model.json", "evaluation.json", "experiment.json")


def check_run(path: Path) -> None:
    """Refuse a run's folder that is not there, with the runs beside it that have a similar name."""
    if not local_path("run", path).is_dir():
        runs = [str(config.parent) for config in path.parent.glob(f"*/{CONFIG}")]
        hint = nearest_names(str(path), runs, key=lambda run: Path(run).name)
        raise FileNotFoundError(f"there is no folder {str(path)!r}{hint}")


def check_source(data: str, data_root: str | None) -> None:
    """Refuse data that are no file, no folder and no name."""
    if is_remote(data) or "://" in data:
        as_path(data)
    elif not Path(data).expanduser().exists():
        from vicinal.data.names import require_source  # numpy: not for `--help`

        require_source(data, data_root)
