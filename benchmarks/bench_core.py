"""Mixing, mixed losses and whole training steps, against torchvision, timm and plain training."""

from __future__ import annotations

from functools import partial

import timm.data.mixup as timm_mixup
import torch
from torch.nn import functional as F
from torchvision.transforms import v2

import vicinal
from benchmarks.resnet import step_with
from benchmarks.timing import goal, interleaved, milliseconds, ratio, shown, table, versions
from vicinal import CutMix, LogitMix, ManifoldMixup, Mixup, losses, mixing
from vicinal.training import kept_memory

OBJECTIVES = {
    "ERM()": (vicinal.ERM(), None),
    "Mixup(alpha=1.0)": (Mixup(alpha=1.0), 1.03),
    "CutMix(alpha=1.0)": (CutMix(alpha=1.0), 1.03),
    "ManifoldMixup": (ManifoldMixup(layers=["input", "layer1", "layer2"]), 1.03),
    "LogitMix(Mixup(alpha=3.0))": (LogitMix(Mixup(alpha=3.0)), 2.1),
    "LogitMix(…, split_forward=True)": (LogitMix(Mixup(alpha=3.0), split_forward=True), None),
}


def training_steps(rounds: int = 15, where: str = "in a bare loop") -> str:
    """One SGD step of a CIFAR ResNet-18 of width 16, B = 128."""
    x, y = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    contenders = {name: step_with(objective, x, y) for name, (objective, _) in OBJECTIVES.items()}
    seconds = interleaved(contenders, rounds=rounds, warmup=2)
    rows = []
    for (name, s), (_, most) in zip(seconds.items(), OBJECTIVES.values(), strict=True):
        of_erm = ratio(s, seconds["ERM()"])
        rows.append([f"`{name}`", milliseconds(s), shown(of_erm), goal(of_erm, at_most=most) if most else ""])
    return table([f"training step {where}, ResNet-18 width 16, B = 128", "time", "of ERM", "goal"], rows)


def training_steps_of_fit(rounds: int = 15) -> str:
    """The same with memory kept between steps, as `fit` keeps it."""
    with kept_memory():
        return training_steps(rounds, where="as in `fit` (`kept_memory`)")


def channels_last_steps(rounds: int = 15) -> str:
    """The same step with a channels-last network and images, which every objective leaves so."""
    objectives = {"ERM()": vicinal.ERM(), "Mixup(alpha=1.0)": Mixup(alpha=1.0), "CutMix(alpha=1.0)": CutMix(alpha=1.0)}
    x, y = torch.randn(128, 3, 32, 32).to(memory_format=torch.channels_last), torch.randint(10, (128,))

    last = torch.channels_last
    contenders = {name: step_with(o, x, y, memory_format=last) for name, o in objectives.items()}
    seconds = interleaved(contenders, rounds=rounds, warmup=2)
    rows = []
    for name, s in seconds.items():
        of_erm = ratio(s, seconds["ERM()"])
        rows.append(
            [f"`{name}`", milliseconds(s), shown(of_erm), goal(of_erm, at_most=1.03) if name != "ERM()" else ""]
        )
    return table(["training step, channels-last, ResNet-18 width 16, B = 128", "time", "of ERM", "goal"], rows)


def mixed_loss(rounds: int = 200) -> str:
    """The mixed-label loss at K = 1000, forward and backward."""
    rows = []
    for n in (128, 1024):
        z = torch.randn(n, 1000, requires_grad=True)
        a, b = torch.randint(1000, (2, n))
        lam = torch.rand(()).expand(n)

        def timed(loss, z=z):
            def run():
                z.grad = None
                loss().backward()

            return run

        contenders = {
            "hard cross-entropy (torch)": timed(lambda z=z, a=a: F.cross_entropy(z, a)),
            "mixed_cross_entropy": timed(
                lambda z=z, a=a, b=b, lam=lam: losses.mixed_cross_entropy(z, a, b, lam).mean()
            ),
            "dense one-hot (torch)": timed(
                lambda z=z, a=a, b=b, lam=lam: F.cross_entropy(
                    z, lam[:, None] * F.one_hot(a, 1000) + (1 - lam[:, None]) * F.one_hot(b, 1000)
                )
            ),
        }
        seconds = interleaved(contenders, rounds=rounds, warmup=10)
        hard = seconds["hard cross-entropy (torch)"]
        for name, s in seconds.items():
            of_hard = ratio(s, hard)
            wanted = goal(of_hard, at_most=1.9) if name == "mixed_cross_entropy" else ""
            rows.append([f"{name}, B = {n}", milliseconds(s), shown(of_hard), wanted])
    return table(["loss at K = 1000, forward and backward", "time", "of hard", "goal"], rows)


def mixing_batches() -> str:
    """Mixing a batch, against torchvision's v2.MixUp (which also mixes the labels)."""
    rows = []
    for shape, rounds, most in (((256, 3, 224, 224), 15, 0.7), ((128, 3, 32, 32), 300, 0.6)):
        x, y = torch.randn(shape), torch.randint(1000, shape[:1])
        peer = v2.MixUp(alpha=1.0, num_classes=1000)
        objective = Mixup(alpha=1.0)

        def ours(x=x, y=y, objective=objective):
            return objective.draw(None, x, y).combine(x)

        seconds = interleaved({"peer": lambda x=x, y=y, peer=peer: peer(x, y), "ours": ours}, rounds=rounds, warmup=2)
        size, of_peer = "×".join(map(str, shape)), ratio(seconds["ours"], seconds["peer"])
        times = [milliseconds(seconds[name]) for name in ("ours", "peer")]
        rows.append([size, *times, shown(of_peer), goal(of_peer, at_most=most)])
    return table(["mix a batch", "vicinal", "torchvision v2.MixUp", "ratio", "goal"], rows)


def cutmix_boxes(rounds: int = 40) -> str:
    """A box per sample, against timm's `elem` mode: ten batches in a row, and one alone."""
    x, y = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    peer = timm_mixup.Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, mode="elem", label_smoothing=0.0, num_classes=10)
    objective = CutMix(alpha=1.0, per_sample=True)

    def ours():
        plan = objective.draw(None, x, y)
        return mixing.paste_rows(x, plan.partner, plan.boxes)

    plan = objective.draw(None, x, y)
    contenders = {
        "drawn and pasted": ours,
        "pasted": lambda: mixing.paste_rows(x, plan.partner, plan.boxes),
        "copy": lambda: x.clone(),
        "peer": lambda: peer(x.clone(), y),  # timm edits its input in place, so it gets a copy
    }
    rows = []
    for times, how in ((10, "ten in a row"), (1, "one alone, after the other's")):

        def repeated(run, times=times):
            for _ in range(times):
                run()

        timed = {name: partial(repeated, run) for name, run in contenders.items()}
        seconds = {name: s / times for name, s in interleaved(timed, rounds=rounds, warmup=3).items()}
        peer_alone = seconds["peer"] - seconds["copy"]
        for what in ("drawn and pasted", "pasted"):
            faster = ratio(peer_alone, seconds[what])
            taken = [milliseconds(seconds[what]), milliseconds(peer_alone)]
            rows.append([f"128×3×32×32, {what}, {how}", *taken, shown(faster), goal(faster, at_least=20)])
    return table(["a CutMix box per sample", "vicinal", "timm elem", "times faster", "goal"], rows)


def main() -> None:
    print(f"Versions: {versions('torchvision', 'timm')}\n")
    for part in (training_steps, training_steps_of_fit, channels_last_steps, mixed_loss, mixing_batches, cutmix_boxes):
        print(part(), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
