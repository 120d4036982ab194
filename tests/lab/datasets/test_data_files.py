"""Downloads against a server on this machine that breaks connections and damages files."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nicegnn_lab.datasets.data_files import ChecksumError, DownloadError, RemoteFile, download_file
from nicegnn_lab.datasets.prepare import download_dataset
from nicegnn_lab.datasets.registry import FAMILIES

CONTENT = bytes(range(256)) * 1000  # 256,000 bytes
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server does."""

    content: bytes = CONTENT
    sent: int | None = None  # bytes after which the connection breaks
    statuses: list[int] = field(default_factory=list)  # answers of the next connections


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        behaviour: Behaviour = self.server.behaviour  # type: ignore[attr-defined]
        if behaviour.statuses:
            self.send_error(behaviour.statuses.pop(0))
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(behaviour.content)))
        self.end_headers()
        self.wfile.write(behaviour.content[: behaviour.sent])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[tuple[Behaviour, str]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.behaviour = Behaviour()  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield httpd.behaviour, f"http://127.0.0.1:{httpd.server_port}/set/file.bin"  # type: ignore[attr-defined]
    httpd.shutdown()
    httpd.server_close()
    thread.join(5)


def fetch(url, folder, sha256=SHA256, **settings):
    urls = (url,) if isinstance(url, str) else url
    return download_file(RemoteFile("set/file.bin", urls, sha256), folder, **settings)


def files_in(folder):
    return sorted(path.name for path in folder.glob("set/*"))


def test_a_sound_file_is_put_in_place(server, tmp_path):
    _, url = server
    done = fetch(url, tmp_path)
    assert (done.status, done.sha256) == ("fetched", SHA256)
    assert done.path.read_bytes() == CONTENT
    assert files_in(tmp_path) == ["file.bin"]
    assert fetch("http://127.0.0.1:1/none", tmp_path).status == "already there"


def test_a_broken_connection_leaves_nothing(server, tmp_path):
    behaviour, url = server
    behaviour.sent = 100_000
    with pytest.raises(DownloadError, match="100000 bytes read"):
        fetch(url, tmp_path)
    assert files_in(tmp_path) == []


def test_damaged_content_is_refused_and_leaves_nothing(server, tmp_path):
    behaviour, url = server
    behaviour.content = CONTENT[:-1] + b"?"
    with pytest.raises(ChecksumError, match=rf"sha256 must be {SHA256} \(got \w+\)"):
        fetch(url, tmp_path)
    assert files_in(tmp_path) == []


def test_second_address_helps_out(server, tmp_path):
    behaviour, url = server
    behaviour.statuses = [404]
    assert fetch((f"{url}?gone", url), tmp_path).status == "fetched"


def test_offline_message_names_address_and_place(tmp_path):
    with pytest.raises(DownloadError) as error:
        fetch("http://127.0.0.1:1/file.bin", tmp_path)
    assert "fetch http://127.0.0.1:1/file.bin elsewhere" in str(error.value)
    assert f"place it at {tmp_path / 'set' / 'file.bin'}" in str(error.value)


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
    done = download_dataset(["benzene"], root=tmp_path)
    assert [file.path.name for file in done] == ["a", "b"]
