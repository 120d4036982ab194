"""Downloads against a server on this machine that breaks connections and damages files."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nicegnn_lab.datasets import ChecksumError, DownloadError, download_dataset
from nicegnn_lab.datasets.data_files import RECORD, RemoteFile, download_file
from nicegnn_lab.datasets.registry import FAMILIES

CONTENT = bytes(range(256)) * 1000  # 256,000 bytes
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    drop_after: list[int] = field(default_factory=list)  # bytes sent by the next connections
    statuses: list[int] = field(default_factory=list)  # answers of the next connections
    honours_ranges: bool = True
    ranges: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        behaviour: Behaviour = self.server.behaviour  # type: ignore[attr-defined]
        asked = self.headers.get("Range")
        behaviour.ranges.append(asked)
        if behaviour.statuses:
            self.send_error(behaviour.statuses.pop(0))
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if not behaviour.honours_ranges:
            start = 0
        if start >= len(behaviour.content):
            self.send_error(416)
            return
        body = behaviour.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"version-1"')
        self.end_headers()
        limit = behaviour.drop_after.pop(0) if behaviour.drop_after else len(body)
        self.wfile.write(body[:limit])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[Behaviour, str]]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.behaviour = Behaviour()  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield httpd.behaviour, f"http://127.0.0.1:{httpd.server_port}/set/file.bin"  # type: ignore[attr-defined]
    httpd.shutdown()
    httpd.server_close()
    thread.join(5)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name, value in (("ATTEMPTS", 4), ("WAIT", 0.01), ("TIMEOUT", 5)):
        monkeypatch.setattr(f"nicegnn_lab.datasets.data_files.{name}", value)


def fetch(url, folder, sha256=SHA256, **settings):
    urls = (url,) if isinstance(url, str) else url
    return download_file(RemoteFile("set/file.bin", urls, sha256), folder, **settings)


def names(folder):
    return sorted(path.name for path in (folder / "set").iterdir())


def test_a_sound_file_is_put_in_place(server, tmp_path):
    _, url = server
    done = fetch(url, tmp_path)
    assert (done.status, done.sha256) == ("fetched", SHA256)
    assert done.path.read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]
    assert fetch("http://127.0.0.1:1/none", tmp_path).status == "already there"


def test_broken_connections_are_resumed_where_they_broke(server, tmp_path):
    behaviour, url = server
    behaviour.drop_after = [100_000, 50_000]
    assert fetch(url, tmp_path).path.read_bytes() == CONTENT
    assert behaviour.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_run_goes_on_with_the_part(server, tmp_path):
    behaviour, url = server
    behaviour.drop_after = [60_000, 1, 1, 1]
    with pytest.raises(DownloadError, match="connection broke after 60003 bytes"):
        fetch(url, tmp_path)
    assert names(tmp_path) == ["file.bin.part"]
    behaviour.ranges.clear()
    assert fetch(url, tmp_path).path.read_bytes() == CONTENT
    assert behaviour.ranges == ["bytes=60003-"]


def test_servers_without_ranges_start_over(server, tmp_path):
    behaviour, url = server
    behaviour.honours_ranges = False
    behaviour.drop_after = [100_000]
    assert fetch(url, tmp_path).path.read_bytes() == CONTENT


@pytest.mark.parametrize("old", [b"x" * 1000, b"x" * 300_000])
def test_a_part_of_another_file_is_thrown_away(old, server, tmp_path):
    _, url = server
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.bin.part").write_bytes(old)
    assert fetch(url, tmp_path).path.read_bytes() == CONTENT


def test_damaged_content_is_refused_and_leaves_nothing(server, tmp_path):
    behaviour, url = server
    behaviour.content = CONTENT[:-1] + b"?"
    with pytest.raises(ChecksumError, match=rf"sha256 must be {SHA256} \(got \w+\).*set/file\.bin"):
        fetch(url, tmp_path)
    assert names(tmp_path) == []


def test_second_address_helps_out(server, tmp_path):
    behaviour, url = server
    behaviour.statuses = [404]
    assert fetch((f"{url}?gone", url), tmp_path).status == "fetched"
    assert len(behaviour.ranges) == 2  # a missing file is not asked for again


def test_busy_servers_are_asked_again(server, tmp_path):
    behaviour, url = server
    behaviour.statuses = [503, 429]
    assert fetch(url, tmp_path).status == "fetched"


def test_offline_message_names_address_and_place(tmp_path):
    with pytest.raises(DownloadError) as error:
        fetch("http://127.0.0.1:1/file.bin", tmp_path)
    assert "fetch http://127.0.0.1:1/file.bin elsewhere" in str(error.value)
    assert f"place it at {tmp_path / 'set' / 'file.bin'}" in str(error.value)


def test_first_use_is_recorded_and_later_ones_must_agree(server, tmp_path):
    behaviour, url = server
    assert fetch(url, tmp_path, sha256=None).status == "first use"
    assert json.loads((tmp_path / RECORD).read_text()) == {"set/file.bin": SHA256}
    assert fetch(url, tmp_path, sha256=None, force=True).status == "fetched"
    behaviour.content = CONTENT * 2
    with pytest.raises(ChecksumError, match=SHA256):
        fetch(url, tmp_path, sha256=None, force=True)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT  # the good one stays


def test_an_old_part_without_checksum_is_not_trusted(server, tmp_path):
    behaviour, url = server
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.bin.part").write_bytes(b"x" * 1000)
    assert fetch(url, tmp_path, sha256=None).path.read_bytes() == CONTENT
    assert behaviour.ranges == [None]


def test_a_file_with_another_content_is_not_overwritten(server, tmp_path):
    _, url = server
    path = tmp_path / "set" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    with pytest.raises(ChecksumError, match=r"--force"):
        fetch(url, tmp_path)
    assert path.read_bytes() == b"mine"
    assert fetch(url, tmp_path, force=True).path.read_bytes() == CONTENT


def test_a_dataset_is_all_its_files(server, tmp_path, monkeypatch):
    _, url = server
    files = [RemoteFile(f"benzene/{name}", (url,), SHA256) for name in ("a", "b")]
    monkeypatch.setitem(FAMILIES, "benzene", replace(FAMILIES["benzene"], remote=files))
    done = download_dataset("benzene", root=tmp_path)
    assert [file.path.name for file in done] == ["a", "b"]
