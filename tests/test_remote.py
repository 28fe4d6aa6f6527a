"""Remote paths against servers on loopback: an S3 store (moto), a web server that fails at times, and memory."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

import numpy as np
import pytest

import vicinal
from tests.cli.running import refused
from tests.cli.running import vicinal as command
from vicinal import _remote
from vicinal._remote import RemotePath, as_path
from vicinal.data import load
from vicinal.predictions import evaluate_file, open_file, write
from vicinal.tables import open_table

fsspec = pytest.importorskip("fsspec", reason="remote paths need fsspec: pip install 'vicinal[remote]'")

KEY, SECRET = "AKIDVERYSECRET", "moto-secret-value"


def write_shards(folder, n=3, rows=400):
    """Write shards of labelled predictions."""
    random = np.random.default_rng(0)
    for k in range(n):
        probs = random.dirichlet(np.ones(3), rows)
        label = [f"c{i}" for i in (probs.cumsum(1) < random.random((rows, 1))).sum(1)]
        write(folder / f"part-{k}.parquet", ["c0", "c1", "c2"], [({"label": label}, probs)])


@pytest.fixture(scope="module")
def store():
    moto = pytest.importorskip("moto.server", reason="the S3 server of the tests is moto's: pip install 'moto[server]'")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
             "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    _remote._file_system.cache_clear()
    _bucket(f"http://{host}:{port}")
    yield "s3://bucket"
    server.stop()
    _remote._file_system.cache_clear()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _bucket(endpoint):
    from pyarrow import fs

    fs.S3FileSystem(endpoint_override=endpoint, region="us-east-1", allow_bucket_creation=True).create_dir("bucket")


@pytest.fixture
def memory():
    fsspec.filesystem("memory").store.clear()
    yield "memory://place"
    fsspec.filesystem("memory").store.clear()


def upload(folder, place):
    for path in folder.iterdir():
        RemotePath(f"{place}/{path.name}").upload(path)


@pytest.mark.parametrize("where", ["store", "memory"])
def test_shards_elsewhere_measure_as_local_ones(where, request, tmp_path):
    place = request.getfixturevalue(where)
    write_shards(tmp_path)
    upload(tmp_path, f"{place}/shards")
    here = evaluate_file(tmp_path)
    for address in (f"{place}/shards", f"{place}/shards/part-*.parquet"):
        there = evaluate_file(address)
        assert there.n == here.n == 1200
        assert {k: v for k, v in there.to_dict().items() if k not in ("path", "file")} == {
            k: v for k, v in here.to_dict().items() if k not in ("path", "file")
        }
    assert open_table(tmp_path).fingerprint() == open_table(f"{place}/shards").fingerprint()


FORMS = ["csv", "csv.gz", "csv.zip", "jsonl", "parquet", "feather", "arrows", "orc", "npy", "xlsx"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_as_from_disk(form, memory, tmp_path):
    import pandas as pd
    import pyarrow as pa

    frame = pd.DataFrame({"x": np.arange(9) / 8, "y": list("abcabcabc")})
    path = tmp_path / f"data.{form}"
    if form == "npy":
        np.save(path, np.arange(12.0).reshape(4, 3))
    elif form.startswith("csv"):
        frame.to_csv(path, index=False)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif form == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    elif form == "arrows":
        arrow = pa.Table.from_pandas(frame)
        with pa.ipc.new_stream(path, arrow.schema) as stream:
            stream.write(arrow)
    else:
        getattr(frame, f"to_{form}")(path)
    upload(tmp_path, memory)
    here, there = open_table(path), open_table(f"{memory}/data.{form}")
    assert [c.columns[n].to_pylist() for c in here.chunks() for n in here.columns] == [
        c.columns[n].to_pylist() for c in there.chunks() for n in there.columns
    ]
    assert here.fingerprint() == there.fingerprint()


def test_the_command_reads_and_writes_an_s3_store(store, tmp_path):
    write_shards(tmp_path)
    upload(tmp_path, f"{store}/in")
    done = command("evaluate", f"{store}/in/part-*.parquet", "--report", f"{store}/out/report.html", "--json")
    assert b"vicinal" in RemotePath(f"{store}/out/report.html").read_bytes()
    held_out, out = f"{store}/in/part-0.parquet", f"{store}/out/calibrated.parquet"
    done = command("calibrate", held_out, f"{store}/in/part-1.parquet", "--out", out, "--json")
    assert open_file(out).n_rows == 400
    lost = refused("calibrate", held_out, f"{store}/in/part-1.parquet", "--out", f"{store}/in/part-1.parquet")
    assert "input of this command" in lost
    missing = refused("evaluate", f"{store}/in/none.parquet")
    assert "there is no file" in missing
    for said in (done.out + done.err, lost, missing):
        assert KEY not in said
        assert SECRET not in said


def test_training_and_predicting_from_a_store(store, tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    rows = "\n".join(f"{a:.3f},{b:.3f},{'p' if a + b > 0 else 'n'}" for a, b in x)
    path = tmp_path / "data.csv"
    path.write_text(f"a,b,y\n{rows}\n")
    RemotePath(f"{store}/data.csv").upload(path)
    run = tmp_path / "run"
    options = ["--target", "y", "--epochs", "1", "--model", "mlp", "--json"]
    command("train", f"{store}/data.csv", *options, "--out", str(run))
    assert load(f"{store}/data.csv", target="y").fingerprint == load(path, target="y").fingerprint
    for source, out in ((str(path), f"{tmp_path}/p.csv"), (f"{store}/data.csv", f"{store}/p.csv")):
        command("predict", str(run), source, "--out", out)
    assert RemotePath(f"{store}/p.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()
    assert "runs stay on this machine" in refused("train", f"{store}/data.csv", *options, "--out", f"{store}/run")
    with pytest.raises(ValueError, match="a local folder"):
        vicinal.load(f"{store}/run")
    for file in run.rglob("*.json"):
        assert SECRET not in file.read_text()
        assert KEY not in file.read_text()


class _Flaky(http.server.BaseHTTPRequestHandler):
    """Serves one file with ranges; every third answer is an error of the server, or ends early."""

    content, asked = b"", 0
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        type(self).asked += self.path.startswith("/data.csv")
        if type(self).asked % 3 == 1 and self.path.startswith("/data.csv"):
            self.send_error(503)
            return
        self._answer(body=True)

    def _answer(self, *, body):
        if self.path.startswith("/status/"):
            type(self).asked += 1
            self.send_error(int(self.path.removeprefix("/status/")[:3]))
            return
        if not self.path.startswith("/data.csv"):
            self.send_error(404)
            return
        low, high = 0, len(self.content) - 1
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            low, high = int(first), min(int(last or high), high)
        self.send_response(206 if wanted else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(high - low + 1))
        if wanted:
            self.send_header("Content-Range", f"bytes {low}-{high}/{len(self.content)}")
        self.end_headers()
        if body:
            self.wfile.write(self.content[low : high + 1])

    def log_message(self, *args):
        pass


@pytest.fixture
def web(monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(_remote, "_WAIT", 0.001)
    _Flaky.asked = 0
    _Flaky.content = b"x,y\n" + b"".join(b"%d,a\n" % i for i in range(1000))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Flaky)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_web_server_that_fails_at_times_is_asked_again(web):
    table = open_table(f"{web}/data.csv?download=true")
    values = [value for chunk in table.chunks(["x"]) for value in chunk["x"].to_pylist()]
    assert values == [str(i) for i in range(1000)]
    assert _Flaky.asked > 1
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_table(f"{web}/other.csv")
    with pytest.raises(ValueError, match="this place is only read"):
        write(f"{web}/out.csv", ["a", "b"], [({}, np.array([[0.5, 0.5]]))])


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, PermissionError, "credentials of the environment do not allow it"),
        (403, PermissionError, "credentials of the environment do not allow it"),
        (410, FileNotFoundError, "there is no file"),
        (400, OSError, "cannot be used"),
    ],
)
def test_what_another_try_cannot_mend_is_said_at_once(status, error, said, web):
    with pytest.raises(error, match=said):
        open_table(f"{web}/status/{status}.csv")
    assert _Flaky.asked <= 2  # a request for the size, and for its first byte


def test_a_server_that_never_answers_is_named(monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(_remote, "_WAIT", 0.001)
    with pytest.raises(OSError, match="did not answer in 5 tries"):
        open_table("http://127.0.0.1:9/data.csv")


@pytest.mark.parametrize(
    "address",
    ["https://user:hunter2@host/x.csv", "https://host/x.csv?X-Amz-Signature=hunter2", "https://host/x?api_key=hunter2"],
)
def test_credentials_in_an_address_are_refused_and_not_printed(address):
    with pytest.raises(ValueError, match="from the environment") as caught:
        open_table(address)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in refused("evaluate", address)


def test_wrong_credentials_are_an_error_that_does_not_print_them(monkeypatch):
    def denied():
        raise OSError("AWS Error ACCESS_DENIED during HeadObject operation: Access Denied")

    with pytest.raises(PermissionError, match="credentials of the environment do not allow it"):
        _remote._retried(RemotePath("s3://b/x.csv"), denied)
    for address in ("ftp://host/x.csv", "gcs:/bucket/x.csv", "S3://bucket/x.csv"):
        with pytest.raises(ValueError, match="a local path, or one of s3://"):
            as_path(address)
    assert "a local path, or one of s3://" in refused("evaluate", "abfs://host/x.csv")
    assert "a local path, or one of s3://" in refused("train", "abfs://host/x.csv", "--target", "y")


def test_an_error_that_quotes_a_credential_does_not_print_it(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(_remote, "_WAIT", 0)

    def failing(kind):
        def request():
            raise kind(f"the server has {SECRET}, at https://host/x?X-Amz-Signature=abc")

        return request

    for kind in (OSError, PermissionError, NotImplementedError, ValueError):
        with pytest.raises((OSError, ValueError)) as caught:
            _remote._retried(RemotePath("s3://b/x.csv"), failing(kind))
        told = "".join(traceback.format_exception(caught.value))
        assert SECRET not in told.replace('"the server has {SECRET}', "")
        assert "Signature=abc" not in str(caught.value)
    with pytest.raises(KeyError, match="a mistake of ours"):
        _remote._retried("s3://b/x.csv", lambda: {}["a mistake of ours"])


class _Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hugging Face Hub does for one data set of two files."""

    files: ClassVar = {f"data/part-{k}.csv": b"x,y\n" + b"%d,a\n" % k * 100 for k in range(2)}
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, _, what = self.path.partition("datasets/user/name")
        entries = [{"type": "file", "path": p, "size": len(c), "oid": "a" * 40} for p, c in self.files.items()]
        folder = [{"type": "directory", "path": "data", "oid": "b" * 40}]
        if what.startswith("/paths-info"):
            asked = parse_qs(content.decode()).get("paths", [])
            self._say([one for one in [*entries, *folder] if one["path"] in asked])
        elif what.startswith("/tree"):
            self._say(entries if what.partition("?")[0].endswith("data") else folder)
        elif what.startswith("/resolve"):
            file = self.files[what.partition("?")[0].split("/", 3)[3]]
            low, high = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
            self._send(206, file[low : high + 1], {"Content-Range": f"bytes {low}-{high}/{len(file)}"})
        elif "datasets/user/name" in self.path:
            self._say({"id": "user/name", "sha": "0" * 40, "private": False, "tags": [], "downloads": 0, "likes": 0})
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_POST = do_HEAD = do_GET  # noqa: N815 (the names of the base class)

    def _say(self, answer):
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json", "X-Repo-Commit": "0" * 40})

    def _send(self, status, content, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    def log_message(self, *args):
        pass


READ_HUB = """
from vicinal.tables import open_table
for name in ("data/part-1.csv", "data/part-*.csv", "data", "none.csv", "../other/x.csv"):
    try:
        table = open_table(f"hf://datasets/user/name/{name}".replace("name/../", ""))
        print(",".join(v for chunk in table.chunks(["x"]) for v in chunk["x"].to_pylist()))
    except FileNotFoundError as error:
        print(error)
"""


def test_tables_of_the_hugging_face_hub_are_read():
    pytest.importorskip("huggingface_hub")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": "hf_verysecret", "HF_HUB_OFFLINE": "0"}
    path = str(Path(vicinal.__file__).parents[1])
    try:  # a process of its own: the library reads its address when it is imported
        done = subprocess.run(
            [sys.executable, "-c", READ_HUB], env={**os.environ, **own, "PYTHONPATH": path}, capture_output=True,
            text=True, check=True, timeout=300,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    one, pattern, folder, *missing = done.stdout.splitlines()
    assert one.split(",") == ["1"] * 100
    assert pattern.split(",") == folder.split(",") == ["0"] * 100 + ["1"] * 100
    assert missing == [f"there is no file 'hf://datasets/user/{name}'" for name in ("name/none.csv", "other/x.csv")]
    assert "hf_verysecret" not in done.stdout + done.stderr
    out = "hf://datasets/user/name/x.csv"
    assert "--out must be a local file" in refused("calibrate", "held-out.csv", "data.csv", "--out", out)
