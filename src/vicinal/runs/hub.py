"""Sharing a model through the Hugging Face Hub: its files, a model card, and its reliability diagram.

    model.safetensors, model.json   the bundle, as `Bundle.save` writes it
    README.md                       the model card: metrics with intervals, a `model-index`, how to load the model
    reliability.png                 the reliability diagram of the test set

What is uploaded is a folder that `save_pretrained` writes. A local folder and a repository are read by the same code.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal._atomic import replacing
from vicinal._checks import require
from vicinal.metrics import METRICS, Evaluation
from vicinal.runs.layout import RunFiles

if TYPE_CHECKING:
    from vicinal.runs.bundle import Bundle

#: How the Hub names the task of each kind of data.
_TASKS = {
    "tabular": "tabular-classification",
    "text": "text-classification",
    "image": "image-classification",
    "audio": "audio-classification",
}
_CARD, _DIAGRAM = "README.md", "reliability.png"


def save_pretrained(
    bundle: Bundle, folder: str | os.PathLike[str], *, evaluation: Evaluation | None = None, name: str = ""
) -> Path:
    """Write a model, its card and its reliability diagram into a folder; return the folder.

    Parameters
    ----------
    bundle
        The model.
    folder
        Where to write.
    evaluation
        Its evaluation on a test set, such as `Run(folder).result().test.after`. Without one the card has no metrics.
    name
        What `from_pretrained` is given in the card, such as `me/wine`; the folder's name by default.
    """
    path = bundle.save(folder)
    if evaluation is not None:
        from vicinal.plots import reliability_diagram

        pyplot = require("matplotlib.pyplot", "train")
        figure, axes = pyplot.subplots(figsize=(5, 5))
        reliability_diagram(evaluation.table, ax=axes)
        with replacing(path / _DIAGRAM) as temporary:
            figure.savefig(temporary, format="png", dpi=120, bbox_inches="tight")
        pyplot.close(figure)
    with replacing(path / _CARD) as temporary:
        temporary.write_text(model_card(bundle, evaluation, name or path.name), encoding="utf-8")
    return path


def push_to_hub(
    bundle: Bundle,
    repo_id: str,
    *,
    evaluation: Evaluation | None = None,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
) -> str:
    """Upload a model, its card and its diagram to a repository of the Hub; return the address of the commit.

    The token is that of `hf auth login` if none is given. It is never written or printed.
    """
    api = require("huggingface_hub", "text").HfApi(token=token)
    api.create_repo(repo_id, private=private, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = save_pretrained(bundle, scratch, evaluation=evaluation, name=repo_id)
        commit = api.upload_folder(
            repo_id=repo_id, folder_path=folder, revision=revision, commit_message="Upload a vicinal model"
        )
    return str(commit.commit_url)


def downloaded(source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None) -> Path:
    """Return the folder of a model: `source` if it is one, else a snapshot of the repository of that name."""
    if Path(source).is_dir():
        return Path(source)
    files = RunFiles("")
    # Nothing else is fetched: a repository may hold anything, and only these two files are read.
    wanted = [files.weights.name, files.model.name]
    hub = require("huggingface_hub", "text")
    return Path(hub.snapshot_download(os.fspath(source), revision=revision, token=token, allow_patterns=wanted))


def model_card(bundle: Bundle, evaluation: Evaluation | None, repo_id: str) -> str:
    """Return the text of a model card, with its metadata as YAML."""
    name = repo_id.rpartition("/")[2]
    hub = require("huggingface_hub", "text")
    task = _TASKS.get(bundle.preprocessing.kind, "other")
    metrics = {} if evaluation is None else {key: one for key, one in evaluation.metrics.items() if one is not None}
    data = hub.ModelCardData(
        library_name="vicinal",
        pipeline_tag=task,
        tags=["calibration", "uncertainty"],
        **_index(name, task, {key: one.value for key, one in metrics.items()}),
    )
    lines = [f"# {name}", "", f"A calibrated classifier of {_listed(bundle.classes)}, trained by `{bundle.method}`."]
    if evaluation is not None:
        level = f"{100 * evaluation.level:g} % interval"
        lines += [
            "",
            f"## Metrics on {evaluation.n:,} test samples",
            "",
            f"| metric | value and {level} |",
            "|---|---|",
        ]
        named = {METRICS[key].heading(evaluation.n_bins): METRICS[key].text(one) for key, one in metrics.items()}
        lines += [f"| {heading} | {text} |" for heading, text in named.items()]
        lines += ["", f"![Reliability diagram]({_DIAGRAM})"]
    lines += ["", "## Use", "", "```python", "from vicinal import Bundle", ""]
    lines += [f'model = Bundle.from_pretrained("{repo_id}")', 'probs = model.predict_proba("new data")', "```", ""]
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(lines)


def _index(name: str, task: str, values: Mapping[str, float]) -> dict[str, object]:
    """Return the `model-index` of the metadata. The Hub has no name for a user's own data."""
    if not values:
        return {}
    found = [
        require("huggingface_hub", "text").EvalResult(
            task_type=task,
            dataset_type="custom",
            dataset_name="test set",
            metric_type=key,
            metric_value=float(f"{value:.6g}"),
        )
        for key, value in values.items()
    ]
    return {"model_name": name, "eval_results": found}


def _listed(classes: tuple[str, ...]) -> str:
    # Names come from data: no backtick or line break may end the code that they stand in.
    shown = ", ".join("`" + " ".join(one.replace("`", "'").split()) + "`" for one in classes[:10])
    return shown if len(classes) <= 10 else f"{len(classes):,} classes ({shown}, …)"
