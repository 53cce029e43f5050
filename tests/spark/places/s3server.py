"""Servers that speak S3, from a registry, and a wire tap in front of them.

Two, because each can what the other cannot: rclone serves a folder and checks who asks, but takes no upload
of unknown length, which is how pyarrow writes; moto takes every kind of upload, and lets everybody in.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KEY, SECRET = "penstock-tests", "a-secret-of-the-tests"
BUCKET = "archive"


@dataclass(frozen=True)
class Request:
    """What a client asked for. ``first`` and ``last`` are the range of bytes, -1 without one."""

    method: str
    target: str
    first: int = -1
    last: int = -1


@dataclass
class S3Server:
    """``folder`` is the bucket: what is put there is an object. Asked through the tap at ``port``."""

    folder: Path
    port: int
    behind: int
    requests: list[Request] = field(default_factory=list)
    bytes_out: int = 0

    def uri(self, path: str, *, secret: str = SECRET, bucket: str = BUCKET) -> str:
        """To read: the tap counts."""
        return _uri(f"{bucket}/{path}", secret, self.port)

    def write_uri(self, path: str, *, bucket: str = BUCKET) -> str:
        """To write, past the tap, which knows no bodies."""
        return _uri(f"{bucket}/{path}", SECRET, self.behind)

    def forget(self) -> None:
        """Begin a new count."""
        self.requests.clear()
        self.bytes_out = 0

    def reads_of(self, name: str) -> list[Request]:
        """Reads of objects whose key ends so."""
        return [r for r in self.requests if r.method == "GET" and r.target.partition("?")[0].endswith(name)]


def _uri(path: str, secret: str, port: int) -> str:
    server = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://{KEY}:{secret}@{path}?{server}"


def rclone() -> str | None:
    """The program, from beside the interpreter or from PATH."""
    beside = Path(sys.executable).parent / "rclone"
    return str(beside) if beside.exists() else shutil.which("rclone")


@contextlib.contextmanager
def serve(program: str, root: Path) -> Iterator[S3Server]:
    """The server on a folder whose subfolders are buckets, until the block ends."""
    bucket = root / BUCKET
    bucket.mkdir(parents=True)
    behind = _free_port()
    command = [program, "serve", "s3", "--addr", f"127.0.0.1:{behind}", "--auth-key", f"{KEY},{SECRET}"]
    command += ["--etag-hash", "", "--vfs-cache-mode", "off", "--dir-cache-time", "0s", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(behind, process)
        with _tapped(bucket, behind) as server:
            yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def serve_uploads() -> Iterator[S3Server]:
    """A server that keeps what it is given in memory, with one bucket, until the block ends."""
    behind = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(behind)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(behind, process)
        made = urllib.request.Request(f"http://127.0.0.1:{behind}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made, timeout=30).close()
        with _tapped(Path(), behind) as server:
            yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def _tapped(bucket: Path, behind: int) -> Iterator[S3Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = S3Server(bucket, listener.getsockname()[1], behind)
        threading.Thread(target=_accept, args=(listener, behind, server), daemon=True).start()
        yield server


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # it refuses the unsigned request: it is there
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _accept(listener: socket.socket, behind: int, server: S3Server) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        upstream = socket.create_connection(("127.0.0.1", behind))
        for work in (_tap_requests, _count_answers):
            threading.Thread(target=work, args=(client, upstream, server), daemon=True).start()


def _tap_requests(client: socket.socket, upstream: socket.socket, server: S3Server) -> None:
    """Pass on what the client sends, and note the heads of requests: readers send no bodies."""
    pending = b""
    with contextlib.suppress(OSError):
        while data := client.recv(1 << 16):
            pending += data
            while b"\r\n\r\n" in pending:
                head, _, pending = pending.partition(b"\r\n\r\n")
                server.requests.append(_parse(head.decode("latin-1")))
            upstream.sendall(data)
    with contextlib.suppress(OSError):
        upstream.shutdown(socket.SHUT_WR)


def _parse(head: str) -> Request:
    method, target, _ = head.split("\r\n", 1)[0].split(" ", 2)
    found = re.search(r"^range: *bytes=(\d+)-(\d+)", head, re.IGNORECASE | re.MULTILINE)
    return Request(method, target, int(found[1]), int(found[2])) if found else Request(method, target)


def _count_answers(client: socket.socket, upstream: socket.socket, server: S3Server) -> None:
    with contextlib.suppress(OSError):
        while data := upstream.recv(1 << 16):
            server.bytes_out += len(data)
            client.sendall(data)
    client.close()
    upstream.close()
