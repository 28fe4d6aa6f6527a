"""The guide for two nodes, on two network namespaces with gloo: each is a machine of its own to torchrun."""

from __future__ import annotations

import os
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


@pytest.mark.slow
def test_two_nodes_train_what_one_process_trains_with_twice_the_accumulation(nodes, tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3))
    rows = [",".join([*(f"{v:.4f}" for v in row), "p" if row.sum() > 0 else "n"]) for row in x]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    options = ["train", str(data), "--target", "y", "--model", "mlp", "--epochs", "2", "--batch-size", "32"]
    environment = {**os.environ, "PYTHONPATH": str(Path(vicinal.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2",
             "--nproc_per_node", "1", "--node_rank", str(rank), "--master_addr", "10.77.0.1", "--master_port", "29500",
             "-m", "vicinal", *options, "--out", str(tmp_path / "two")],
            env={**environment, "GLOO_SOCKET_IFNAME": link},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) for rank, (name, link) in enumerate(nodes)
    ]  # fmt: skip
    said = [one.communicate(timeout=500)[0] for one in started]
    assert [one.returncode for one in started] == [0, 0], said
    alone = [sys.executable, "-m", "vicinal", *options, "--accumulation", "2", "--out", str(tmp_path / "one")]
    subprocess.run(alone, env=environment, check=True, capture_output=True)
    two, one = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, rtol=1e-5, atol=1e-6)
