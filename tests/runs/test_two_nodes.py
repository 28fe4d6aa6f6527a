"""The guide for two nodes, on two network namespaces with gloo: each is a machine of its own to torchrun."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vicinal


def _may_make_namespaces() -> bool:
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    name = f"vicinal-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    subprocess.run(["ip", "netns", "del", name], check=True)
    return True


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def nodes():
    if not _may_make_namespaces():
        pytest.skip("network namespaces need root and iproute2")
    names, links = [f"vicinal{k}-{os.getpid()}" for k in "ab"], [f"v{k}{os.getpid()}" for k in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1], "netns", names[1])
        for k, (name, link) in enumerate(zip(names, links, strict=True), start=1):
            ip("-n", name, "addr", "add", f"10.77.0.{k}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield list(zip(names, links, strict=True))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


ROOT = Path(vicinal.__file__).parents[2]
GUIDE = (ROOT / "docs" / "howto" / "scale.md").read_text(encoding="utf-8")
#: The two nodes of the guide are the namespaces, with one process each.
SMALL = {"--nproc_per_node 4": "--nproc_per_node 1", "node0": "10.77.0.1"}
OPTIONS = "--model mlp --epochs 2 --batch-size 32"


def guide(marker: str, place: Path) -> str:
    """Return the block of the guide that has a word, for the storage and the nodes of this test."""
    (block,) = (block for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) if marker in block)
    for old, new in {**SMALL, "/shared": str(place), "--target y": f"--target y {OPTIONS}"}.items():
        block = block.replace(old, new)
    return block


@pytest.fixture
def place(tmp_path):
    """Shards on the storage that both nodes see, the weights that one process has from them, and tools for both."""
    random = np.random.default_rng(0)
    (tmp_path / "shards").mkdir()
    for k in range(3):
        x = random.normal(size=(150, 3))
        rows = [",".join([*(f"{v:.4f}" for v in row), "p" if row.sum() > 0 else "n"]) for row in x]
        (tmp_path / "shards" / f"part-{k}.csv").write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    alone = ["train", str(tmp_path / "shards"), "--target", "y", *OPTIONS.split(), "--accumulation", "2"]
    command = [sys.executable, "-m", "vicinal", *alone, "--out", str(tmp_path / "one")]
    subprocess.run(command, env=environment(), check=True, capture_output=True)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **more}


def tools(place: Path, **scripts: str) -> str:
    """Return a PATH that has these commands first."""
    folder = place / "bin"
    folder.mkdir()
    scripts["torchrun"] = f'exec {sys.executable} -m torch.distributed.run "$@"'
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def assert_as_one_process(place: Path) -> None:
    two, one = (load_file(place / name / "model.safetensors") for name in ("run", "one"))
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_two_nodes_train_what_one_process_trains_with_twice_the_accumulation(nodes, place):
    lines, path = guide("--node_rank 1", place).splitlines(), tools(place)
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, "bash", "-c", line],
            env=environment(GLOO_SOCKET_IFNAME=link, PATH=path),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) for line, (name, link) in zip(lines, nodes, strict=True)
    ]  # fmt: skip
    said = [one.communicate(timeout=500)[0] for one in started]
    assert [one.returncode for one in started] == [0, 0], said
    assert_as_one_process(place)


@pytest.mark.slow
def test_the_job_for_slurm_runs_on_two_nodes(nodes, place):
    """The script of the guide, with an `srun` that starts a task in each namespace."""
    tasks = [
        f'SLURM_NODEID={k} GLOO_SOCKET_IFNAME={link} ip netns exec {name} "$@" & p{k}=$!'
        for k, (name, link) in enumerate(nodes)
    ]
    srun = "\n".join(["export SLURM_NNODES=2", *tasks, "wait $p0 && wait $p1"])
    path = tools(place, srun=srun, scontrol="printf '10.77.0.1\\n10.77.0.2\\n'")
    job = place / "job.sh"
    job.write_text(guide("#SBATCH", place))
    done = subprocess.run(
        ["bash", str(job)], env=environment(PATH=path, SLURM_JOB_NODELIST="node[0-1]"), capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert_as_one_process(place)
