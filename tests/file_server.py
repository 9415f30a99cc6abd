"""A server of files in this process, which breaks off, forgets and refuses as it is told."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from s4d_torch.data import Source
from s4d_torch.data.files.download import fetch

NOISE = bytes((i * i * 31 + i // 7) % 256 for i in range(300_000))


@dataclass
class Shelf:
    """What the server offers, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    etag: str | None = '"1"'
    heeds_if_range: bool = True
    says_length: bool = True
    cuts: list[int] = field(default_factory=list)  # bytes to send before hanging up, per request
    stall: float = 0.0  # seconds of silence before hanging up
    answers: list[int] = field(default_factory=list)  # status to begin with, per request
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, range
    address: str = ""


class _Handler(BaseHTTPRequestHandler):
    shelf: Shelf

    def do_GET(self) -> None:
        shelf, wanted = self.shelf, self.headers["Range"]
        shelf.asked.append((self.path, wanted))
        if shelf.answers:
            self.send_error(shelf.answers.pop(0))
            return
        if self.path not in shelf.files:
            self.send_error(404)
            return
        body, start = shelf.files[self.path], 0
        valid = self.headers["If-Range"] in (None, shelf.etag) or not shelf.heeds_if_range
        if wanted and shelf.ranges and valid:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if shelf.etag:
            self.send_header("ETag", shelf.etag)
        if shelf.says_length:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + shelf.cuts.pop(0) if shelf.cuts else len(body)
        self.wfile.write(body[start:end])
        if end < len(body):
            self.wfile.flush()
            threading.Event().wait(shelf.stall)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serve() -> Iterator[Shelf]:
    """A server on this machine, for as long as the block lasts."""
    shelf = Shelf()
    handler = type("Handler", (_Handler,), {"shelf": shelf})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        shelf.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield shelf
        finally:
            server.shutdown()
            thread.join()


def offer(shelf: Shelf, content: bytes = NOISE, name: str = "x.bin", **fields: str) -> Source:
    """Put a file on the shelf; its source with size and checksum."""
    shelf.files[f"/data/{name}"] = content
    digest = f"md5:{hashlib.md5(content).hexdigest()}"
    return Source(f"{shelf.address}/data/{name}", digest, len(content), **fields)


def get(source: Source, root: Path, wanted: str = "", **options: object) -> bytes:
    """Fetch one file that is not unpacked, and read it."""
    wanted = wanted or source.name
    given = {"download": True, "mirror": None} | options
    fetch([source], root, wanted=wanted, **given)  # type: ignore[arg-type]
    return (root / wanted).read_bytes()


def asked(shelf: Shelf) -> list[str | None]:
    return [wanted for _, wanted in shelf.asked]
