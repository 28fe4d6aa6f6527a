"""What of the papers is covered: every row and column of every table, and every panel of every figure.

The lists are read off the papers. A part of a table is covered if a cell of the recipe at paper scale stands beside it
(`Recipe.printed`). A panel is covered if such a cell has the panel's metric or curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

from vicinal.papers import get
from vicinal.papers.t19_supp import MANIFOLD


class Part(NamedTuple):
    """A row and column of a table, or a row and metric of a panel."""

    paper: str
    place: str
    """The table or figure, with the panel's letter or subject."""
    row: str
    column: str
    """The column of a table, or the metric or curve that a panel shows."""
    recipe: str = ""
    """What covers it."""
    reason: str = ""
    """Why nothing does."""
    is_panel: bool = False


Names: TypeAlias = Sequence[str]


def table(
    place: str, recipe: str, rows: Names, columns: Names, absent: Mapping[tuple[str, str], str] | None = None
) -> Iterator[Part]:
    """Yield every row with every column; `absent` has those that the table leaves empty or quotes, with the reason."""
    paper, _, name = place.partition(" ")
    for row, column in product(rows, columns):
        reason = (absent or {}).get((row, column), "")
        yield Part(paper, name, row, column, "" if reason else recipe, reason)


def panel(place: str, recipe: str, rows: Names, metrics: Names) -> Iterator[Part]:
    """Yield what a panel shows: rows are parts of the names of cells, joined by ` · `."""
    paper, _, name = place.partition(" ")
    for row, metric in product(rows, metrics):
        yield Part(paper, name, row, metric, recipe, is_panel=True)


def without(place: str, reason: str) -> Part:
    """Return a table or figure that no recipe could cover."""
    paper, _, name = place.partition(" ")
    return Part(paper, name, "", "", reason=reason)


_QUOTED = "quoted by the paper from Goyal et al. (2017), which give no top-5 error"
_XIE = "quoted by the paper from Xie et al. (2016), of 100 epochs; z18-tab1 trains ERM for 90 epochs beside it"
_IMAGENET = ("ResNet-50, 90 epochs", "ResNet-101, 90 epochs", "ResNeXt-101 32×4d, 90 epochs",
             "ResNeXt-101 64×4d, 90 epochs", "ResNet-50, 200 epochs", "ResNet-101, 200 epochs",
             "ResNeXt-101 32×4d, 200 epochs")  # fmt: skip
_CIFAR = tuple(product(("CIFAR-10", "CIFAR-100"), ("PreAct ResNet-18", "WRN-28-10", "DenseNet-BC-190")))
_ERM_MIXUP = ("ERM()", "Mixup(alpha=1.0)")
_T19 = ("CIFAR-10 · VGG-16", "CIFAR-10 · ResNet-34", "CIFAR-100 · VGG-16", "CIFAR-100 · ResNet-34",
        "Fashion-MNIST · ResNet-18", "STL-10 · VGG-16")  # fmt: skip
_T19_METHODS = ("ERM()", "Mixup(alpha=0.4)", "ERM(label_smoothing=0.1)", "ERM(confidence_penalty=0.1)")
_T19_BARS = ("best error", "best ece", "best oe")


def _joined(*parts: Names) -> list[str]:
    return [" · ".join(row) for row in product(*parts)]


def _z18() -> Iterator[Part]:
    yield without("Z18 Figure 1a", "a listing of code, which `Mixup` is")
    yield from panel("Z18 Figure 1b", "z18-fig1b", _ERM_MIXUP, ["map", "band"])
    yield from panel("Z18 Figure 2, misses", "z18-fig2", _ERM_MIXUP, ["misses at λ"])
    yield from panel("Z18 Figure 2, gradient norms", "z18-fig2", _ERM_MIXUP, ["norm at λ"])
    quoted = {(row, "ERM top-5"): _QUOTED for row in _IMAGENET[:2]}
    quoted |= {(_IMAGENET[3], f"ERM {top}"): _XIE for top in ("top-1", "top-5")}
    columns = ["ERM top-1", "ERM top-5", "mixup top-1", "mixup top-5"]
    yield from table("Z18 Table 1", "z18-tab1", _IMAGENET, columns, quoted)
    yield Part("Z18", "Table 1", "ResNeXt-101 32×4d, ERM of 100 epochs", "top-1", reason=_XIE)
    rows = [" · ".join((*pair, method)) for pair in _CIFAR for method in _ERM_MIXUP]
    yield from panel("Z18 Figure 3a", "z18-fig3", rows, ["error"])
    yield from panel("Z18 Figure 3b", "z18-fig3", rows, ["course"])
    words = ("LeNet", "VGG-11", "LeNet, validation", "VGG-11, validation")
    yield from table("Z18 Figure 4", "z18-fig4", words, ["ERM", "mixup α = 0.1", "mixup α = 0.2"])
    levels = {"20 %": (0.7, 8), "50 %": (0.8, 32), "80 %": (0.8, 32)}
    noisy = [f"{level}, {row}" for level, (p, a) in levels.items() for row in ("ERM", f"dropout {p}", f"mixup α = {a}")]
    yield from table("Z18 Table 2", "z18-tab2", noisy, ["best", "last", "real", "corrupted"])
    grid = [
        f"{level} · mixup, α = {alpha}" for level, (_, a) in levels.items() for alpha in (1, 2, 8, 32) if alpha != a
    ]
    grid += [
        f"{level} · ERM + dropout, p = {p}" for level, (d, _) in levels.items() for p in (0.5, 0.7, 0.8, 0.9) if p != d
    ]
    yield from panel("Z18 Table 2, the rest of its grids", "z18-tab2", grid, ["best", "last"])
    attacks = [f"{box} {attack}" for box in ("white", "black") for attack in ("FGSM", "I-FGSM")]
    yield from table(
        "Z18 Table 3", "z18-tab3", [f"{m}, {top}" for top in ("top-1", "top-5") for m in ("ERM", "mixup")], attacks
    )
    yield from table(
        "Z18 Table 4", "z18-tab4", ["Abalone", "Arcene", "Arrhythmia", "Htru2", "Iris", "Phishing"], ["ERM", "mixup"]
    )
    gans = _joined(("ring of 8", "grid of 25"), ("GAN", "mixup GAN, α = 0.2"))
    yield from panel("Z18 Figure 5", "z18-fig5", gans, [f"samples {i}" for i in (10, 100, 1000, 10_000, 20_000)])
    choices = ("KMixup(alpha=1.0, k=3)", "two loaders, α = 1", "Mixup(alpha=1.0, partners='same_class')")
    yield from panel("Z18 Section 2, design choices", "z18-choices", choices, ["error"])
    alphas = [f"Mixup(alpha={a})" for a in (0.2, 1.0, 2.0, 8.0, 32.0, "inf")]
    yield from panel("Z18 Section 5, trend with α", "z18-sec5", alphas, ["train", "gap"])
    yield without("Z18 Section 5, averages alone on ImageNet", "told in a sentence, without a number or a network")


def _t19() -> Iterator[Part]:
    density = [f"groups {epoch}" for epoch in (1, 60, 120, 200)]
    yield from panel(
        "T19 Figure 1", "t19-fig1", ["CIFAR-100 · VGG-16 · ERM()", "CIFAR-100 · VGG-16 · Mixup(alpha=0.4)"], density
    )
    for letters, data in (("a, b", "STL-10 · VGG-16"), ("c, d", "CIFAR-100")):
        yield from panel(f"T19 Figure 2{letters}", "t19-fig2", _joined([data], _T19_METHODS[:2]), ["bins"])
    yield from panel("T19 Figure 2, middle row", "t19-fig2", _joined(_T19, _T19_METHODS), _T19_BARS)
    yield from panel(
        "T19 Figure 2e, f", "t19-fig2", _joined(_T19, _T19_METHODS[:2]), ["best ece", "best oe", "ece 100"]
    )
    for letter, metric in (("h", "best ece"), ("i", "best oe"), ("j", "best error")):
        swept = _joined(("VGG-16", "ResNet-34"), ("ERM()", *(f"Mixup(alpha={a})" for a in (0.1, 0.2, 0.4, 1.0, 4.0))))
        yield from panel(f"T19 Figure 2{letter}", "t19-fig2-alpha", swept, [metric])
    large = _joined(("ResNet-50", "ResNeXt-101"), _T19_METHODS)
    yield from panel("T19 Figure 3, bars", "t19-fig3", large, ["error", "ece", "oe"])
    yield from panel("T19 Figure 3, scatter", "t19-fig3", _joined(["ResNeXt-101"], _T19_METHODS[:2]), ["bins"])
    texts = _joined(("MR", "TREC", "IMDB"), ["sentence CNN with GloVe"], _T19_METHODS[:2])
    yield from panel("T19 Figure 4", "t19-fig4", texts, ["error", "ece", "oe"])
    yield from panel("T19 Figure 5", "t19-fig5", [f"α = {a:g}" for a in (0.1, 0.2, 0.3, 0.4, 1, 4)], ["entropy"])
    featured = ("ERM()", "Mixup(alpha=0.4)", "Mixup(alpha=0.4, labels='nearest')")
    yield from panel("T19 Figure 6", "t19-fig6", _joined(_T19, featured), ["best ece", "best oe"])
    long = _joined(("CIFAR-10", "CIFAR-100"), ("ERM()", *(f"Mixup(alpha={a})" for a in (0.1, 0.2, 0.4, 1.0))))
    yield from panel("T19 Figure 7", "t19-fig7", long, ["losses", "ece"])
    scores = ["other scores", "noise scores"]
    models = ("baseline", "mixup (α = 0.4)", "dropout (p = 0.3)")
    yield from panel("T19 Figure 8", "t19-tab1-fig8", models, scores)
    yield from panel("T19 Figure 8", "t19-tab1-fig8", ["baseline"], [f"{name} after temperature" for name in scores])
    rows = ("baseline", "mixup (α = 0.4)", "temperature", "dropout (p = 0.3)")
    yield from table("T19 Table 1", "t19-tab1-fig8", rows, ["AUROC, ImageNet", "AUROC, Gaussian noise"])
    yield from panel("T19 supplement, Manifold Mixup", "t19-supp", [MANIFOLD, "ERM()"], ["ece", "best ece"])
    yield from panel("T19 supplement, convex hull", "t19-hull", _T19_METHODS[:2], ["confidence", "beyond"])


def _l22() -> Iterator[Part]:
    toys = ("vanilla", "Mixup", "Manifold Mixup", "LogitMix (the authors' code)")
    yield from panel("L22 Figure 1", "l22-fig1", toys, ["map", "confidence"])
    losses = ("Vanilla: cls", "Mixup: mix", "LogitMix: cls + sim + mix", "(−) Mixup: cls + sim",
              "(−) cross-entropy: mix + sim", "(−) similarity: mix + cls")  # fmt: skip
    yield from table("L22 Table 1", "l22-tab1", losses, ["accuracy (%)"])
    methods = (
        "Vanilla",
        *(name for base in ("Mixup", "CutMix", "PuzzleMix") for name in (base, f"LogitMix over {base}")),
    )
    networks = ("VGG16", "ResNet50", "ResNeXt50", "MobileNetV2", "ShuffleNetV2")
    pairs = [f"CIFAR-100, {network}" for network in networks]
    pairs += ["TinyImageNet, ResNet50", "TinyImageNet, MobileNetV2", "ILSVRC2015, ResNet50"]
    rows = [f"{pair}, {method}" for pair in pairs for method in methods]
    yield from table("L22 Table 2", "l22-tab2", rows, ["accuracy (%)", "ECE", "OE"])
    tasks = ("MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
    models = ("BERT-base", "Mixup", "LogitMix", "BERT-large", "Mixup, BERT-large", "LogitMix, BERT-large")
    yield from table("L22 Table 3", "l22-tab3", tasks, models)
    for model in models:
        yield Part("L22", "Table 3", "Average", model, reason="the mean of the eight rows, which the claims compare")
    quoted = "VWCI (Seo et al. 2019, quoted)"
    yield from table("L22 Table 4", "l22-tab4", [quoted, "Mixup", "LogitMix"], ["accuracy (%)", "ECE"])
    swept = [f"{m}, α = {a:g}" for m in ("Mixup", "LogitMix (−) cls", "LogitMix") for a in (0.2, 0.4, 0.6, 1, 2, 3, 4)]
    yield from table("L22 Table 5", "l22-tab5", swept, ["accuracy (%)", "ECE", "OE"])
    for place in ("Table 2", "Table 3", "Table 4"):
        yield without(f"L22 {place}, gains in brackets", "differences of rows that are covered")
    weights = [f"{base}, weight {w:g}" for base in ("Mixup", "CutMix", "PuzzleMix") for w in (0.1, 0.5, 1, 2)]
    yield from panel("L22 Section 5.4", "l22-sec5-4", weights, ["error"])


def _p22() -> Iterator[Part]:
    tasks = ("SNLI → MNLI", "QQP → TwitterPPDB", "SWAG → HellaSWAG")
    methods = [f"{base}{ls}" for base in ("plain", "Mixup", "M-Mixup", "Ours") for ls in ("", " + LS")]
    rows = [f"{network}, {task}, {method}" for network, task, method in product(("BERT", "RoBERTa"), tasks, methods)]
    eces = ["ECE", "ECE after TS", "ECE, other domain", "ECE after TS, other domain"]
    yield from table("P22 Table 1", "p22-tab1-2", rows, eces)
    yield from table("P22 Table 2", "p22-tab1-2", rows, ["accuracy", "accuracy, other domain"])
    ablations = ("Ours", "− AUM", "− Saliency", "− dissimilar", "− similar")
    rows = [f"{network}, {task}, {name}" for network, task, name in product(("BERT", "RoBERTa"), tasks, ablations)]
    yield from table("P22 Table 3", "p22-tab3", rows, eces)


def _w21() -> Iterator[Part]:
    yield without("W21 Figure 1", "a drawing of the method, which is `SequenceMixup`")
    yield without("W21 Table 1", "sizes of the data sets: vicinal.data prints those of the files that are there")
    methods, columns = ("Base", "CLS", "Input", "Mani"), ["accuracy", "loss", "ECE"]
    for place, recipe, data in (("W21 Table 2", "w21-tab2", "IMDb"), ("W21 Table 3", "w21-tab3", "AG News")):
        rows = [f"{of}, {m}" for of in (data, f"{data}, 32 examples") for m in methods]
        yield from table(place, recipe, rows, columns)
    rows = [*(f"CoLA, {m}" for m in methods), *(f"{task}, {m}" for task in ("RTE", "BoolQ") for m in methods[:2])]
    yield from table("W21 Table 4", "w21-tab4-fig2", rows, ["MCC (CoLA) or accuracy", "loss", "ECE"])
    pads = ["No Pad", *(f"{pad} ({scope})" for scope in ("pair", "max") for pad in ("unused", "SEP", "PAD"))]
    yield from table("W21 Table 5", "w21-tab5", pads, ["accuracy (%)"])
    yield without("W21 Table 6", "hyper-parameters, which the recipes have at paper scale")
    courses = _joined(("CoLA", "RTE", "BoolQ"), ["BERT-base"], methods[:2])
    yield from panel("W21 Figure 2", "w21-tab4-fig2", courses, ["course"])


def parts() -> list[Part]:
    """Return every part of every table and figure, paper by paper."""
    return [part for of in (_z18, _t19, _l22, _p22, _w21) for part in of()]


def uncovered(every: Sequence[Part]) -> list[Part]:
    """Return the parts whose recipe has no such row and column, or no such panel, at paper scale."""
    shown: dict[str, tuple[set[tuple[str, str]], list[set[str]], set[str]]] = {}
    for name in {part.recipe for part in every if part.recipe}:
        recipe = get(name)
        cells = recipe.rows("paper", recipe.scales["paper"].seeds[:1])
        places = [recipe.printed(cell.key) if recipe.printed is not None else {} for cell in cells]
        printed = {(place.row, place.column) for found in places for place in found.values()}
        shown[name] = printed, [set(cell.key) for cell in cells], {*recipe.columns, *recipe.curves}
    missing = []
    for part in every:
        if part.recipe:
            printed, rows, metrics = shown[part.recipe]
            drawn = part.column in metrics and any(set(part.row.split(" · ")) <= row for row in rows)
            if not (drawn if part.is_panel else (part.row, part.column) in printed):
                missing.append(part)
        elif not part.reason:
            missing.append(part)
    return missing
