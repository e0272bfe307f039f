"""The page of a run that plays, served to this machine alone by the standard library.

The server reads the run's directory as it grows, and the run knows nothing of it. It answers at one
address that nobody can guess, to requests that name this machine as their host, with two things:
the page, and what is new. No path of the disk is ever made of what is asked. What takes long to
import is imported when it is first asked for, so that the address is there at once.
"""

import secrets
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hmac import compare_digest
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from desim.amounts import duration
from desim.errors import DesimError, InputError, RunError
from desim.runs.directory import MANIFEST, pulse
from desim.runs.run import Run, open_run

if TYPE_CHECKING:
    from desim.interface.player.moves import Reading

HERE = "127.0.0.1"
PAUSE = 0.5  # s between two looks at the directory
GRACE = 3.0  # s for which the page of a run that failed is served
PATIENCE = 1.0  # s for which a request waits for what is being read
SHARE = 0.2  # of the time, at most, in which a run is read again
WINDOW = 60.0  # s of real time over which the pace of a run is taken
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


# How far a run is, and how long it will take.


class Pace:
    """When so much of a run was done, and what that says of the rest."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []  # real time s, and the share that was done

    def left(self, run: Run, end: float, rounds: int, when: float) -> str:
        """How long it will take, and from what that is known, in words.

        end s of virtual time and rounds were done at `when` s of real time.
        """
        stop = run.written.get("stop") or {}
        parts = {
            f"round {rounds} of {stop.get('rounds')}": _share(rounds, stop.get("rounds")),
            f"{end:.4g} s of {stop.get('time')} s": _share(end, stop.get("time")),
        }
        said, share = max(parts.items(), key=lambda one: one[1])
        if share <= 0.0:
            limits = stop.get("rounds") or stop.get("time")
            return "not known yet: nothing is done" if limits else "not known: no limit is set"
        if not self.samples or share > self.samples[-1][1]:
            self.samples.append((when, share))
        while len(self.samples) > 2 and when - self.samples[1][0] > WINDOW:
            self.samples.pop(0)
        (began, had), (ended, has) = self.samples[0], self.samples[-1]
        if has <= had or ended <= began:
            return f"not known yet: {said}"
        rest = (1.0 - has) * (ended - began) / (has - had)
        early = ", sooner where a target of stop.metric is met" if stop.get("metric") else ""
        taken = duration(ended - began)
        return f"about {duration(rest)}: {said}, at the pace of the last {taken}{early}"


def _share(done: float, limit: Any) -> float:
    known = isinstance(limit, int | float) and limit > 0
    return min(done / limit, 1.0) if known else 0.0


# The run, read again when its directory has changed.

UNREAD: dict[str, Any] = {  # of a run of which nothing could be read yet
    "status": "", "reason": "", "plays": True, "left": "", "curves": [], "notes": [],
    "privacy": {"said": "", "terms": "", "why": "", "doubts": []},
}  # fmt: skip


class Watched:
    """The run in a directory, as its page sees it.

    said: number of the scene, higher where it is another one and 0 before the first; the scene; and
    the scene as JSON. All three at once, as requests read them while the run is read again.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.said: tuple[int, dict[str, Any], str] = 0, {**UNREAD, "name": path.name}, ""
        self.pace = Pace()
        self._clock, self._rested, self._charged = clock, 0.0, 0.0
        self._spent: dict[str, Any] | None = None
        self._log: Reading | None = None
        self._which: Any = None
        self._mark: Any = None
        self._trouble = ""
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        open_run(path)

    def refresh(self, patience: float | None = None) -> None:
        """Have a thread read the run again, if none does, and wait for it, for patience s at most.

        A long log takes longer than a browser waits for an answer.
        """
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._reader = threading.Thread(target=self._refresh, daemon=True)
                self._reader.start()
            reader = self._reader
        reader.join(patience)

    def _refresh(self) -> None:
        """Read the run again if it has changed, and not too much time is spent on it."""
        mark = pulse(self.path)
        if mark == self._mark or self._clock() < self._rested:
            return
        try:
            self._read(open_run(self.path), mark)
        except (DesimError, OSError) as error:  # its parts became files, or it is gone
            again = str(error) == self._trouble
            self._trouble = str(error)
            version, seen, _ = self.said
            if again or not version:
                self._mark = mark
                self._say({**seen, "trouble": self._trouble})

    def _read(self, run: Run, mark: Any) -> None:
        """Make a new scene of the run."""
        from desim.interface.player.moves import Reading, last_time
        from desim.interface.player.scene import agents_of, privacy, scene
        from desim.interface.reports.readable import readings

        began, plays = self._clock(), run.status == "running"
        which = run.manifest.get("scenario_sha256"), self.path.stat().st_ino
        if which != self._which:  # another run has replaced it
            self._log, self._which, self._charged, self.pace = None, which, 0.0, Pace()
        if self._log is None or self._log.plays != plays:
            self._log = Reading(agents_of(run), plays)
        if began >= self._charged or not plays:  # of many releases it takes longer than the rest
            until = last_time(run.store.pieces("events", ["time"])) if plays else float("inf")
            self._spent = privacy(readings([run])[0])
            self._spent |= {"until": until} if plays else {}
            took = self._clock() - began
            self._charged = self._clock() + took * (1.0 / SHARE - 1.0)
            began += took
        seen = scene(run, self._log, self._spent)
        if plays:
            rounds = max((int(one["round"][-1] or 0) for one in seen["curves"]), default=0)
            seen["left"] = self.pace.left(
                run, seen.get("end", 0.0), rounds, max(written for _, written in mark[1:])
            )
        self._mark, self._trouble = mark, ""
        self._say(seen)
        self._rested = self._clock() + (self._clock() - began) * (1.0 / SHARE - 1.0)

    def _say(self, seen: dict[str, Any]) -> None:
        from desim.interface.reports.page import embedded

        version = self.said[0] + 1
        seen = {**seen, "version_seen": version, "asks": True}
        self.said = version, seen, embedded(seen)


# The server.

EARLY = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta http-equiv="refresh" content="1">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{0}, desim</title>
</head>
<body><h1>{0}</h1><p role="status">The run is being read: its page comes by itself.</p></body>
</html>
"""


class LocalServer(ThreadingHTTPServer):
    """Answers to this machine, at one address: `url`. InputError for a port that is taken."""

    daemon_threads = True

    def __init__(self, watched: Watched, port: int = 0) -> None:
        self.watched, self.secret = watched, secrets.token_urlsafe(16)
        try:
            super().__init__((HERE, port), Answers)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            text = f"found {port}, which is not to be had ({reason})"
            raise InputError(f"--port: {text}; allowed: a free one, 1 to 65535, or none") from None

    def server_bind(self) -> None:
        """Bind, and ask no name server who this is."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HERE, self.server_address[1]

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HERE}:{self.server_port}/{self.secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone meanwhile."""


def _page_of(watched: Watched) -> str:
    """The page of what is known by now, or one that asks again in a second."""
    version, seen, _ = watched.said
    if not version:
        return EARLY.format(escape(watched.path.name))
    from desim.interface.player.animated import page

    return page(seen)


class Answers(BaseHTTPRequestHandler):
    """Answers one request: `GET /secret/`, the page, or `/secret/scene?since=N`, what is new."""

    server: LocalServer
    timeout = 10.0
    server_version, sys_version = "desim", ""

    def do_GET(self) -> None:
        """Answer, or refuse whoever does not know the secret, or comes by another name."""
        server = self.server
        usual = "" if server.server_port == 80 else f":{server.server_port}"  # browsers omit it
        hosts = [f"{name}{usual}" for name in (HERE, "localhost")]
        if self.headers.get("Host") not in hosts:  # a page elsewhere that calls itself this machine
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        try:
            asked = urlsplit(self.path)
        except ValueError:  # half an address of version 6
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        _, secret, *rest = [*asked.path.split("/"), ""]
        if not compare_digest(secret.encode(), server.secret.encode()) or len(rest) != 2:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif rest[0] == "":
            server.watched.refresh(PATIENCE)
            self._send("text/html", _page_of(server.watched))
        elif rest[0] == "scene":
            server.watched.refresh(PATIENCE)
            version, _, text = server.watched.said
            since = parse_qs(asked.query).get("since", [""])[-1]
            self._send("application/json", text if version and since != str(version) else "null")
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _send(self, kind: str, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def _refuse(self, status: HTTPStatus) -> None:
        self._send("text/plain", f"{status.value} {status.phrase}\n", status)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of requests."""


def serve(path: Path, port: int, wait: bool, tell: Callable[[str], None]) -> None:
    """Serve the page of the run at `path` until Ctrl-C; wait: for a run that has not begun.

    tell(text): is called with the page's address. InputError where there is no run.
    """
    with suppress(KeyboardInterrupt):
        while wait and not (path / MANIFEST).exists() and _wanted():
            time.sleep(PAUSE)
        with LocalServer(Watched(path), port) as server:
            tell(f"watching {path} at {server.url} (Ctrl-C ends it)")
            threading.Thread(target=server.watched.refresh, daemon=True).start()  # is soon ready
            server.timeout = PAUSE
            while _wanted():
                server.handle_request()


def _wanted() -> bool:
    """Whether who has begun this process, if it is another's, still lives."""
    parent = parent_process()
    return parent is None or parent.is_alive()


@contextmanager
def beside(path: Path, tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """A process of its own that serves the page of the run which begins at `path` in the context.

    Yield what waits until it has been ended by Ctrl-C.
    """
    process = get_context("spawn").Process(target=serve, args=(path, 0, True, tell), daemon=True)
    process.start()

    def wait() -> None:
        with suppress(KeyboardInterrupt):
            process.join()

    try:
        yield wait
    except RunError:
        process.join(GRACE)  # until the page has seen why
        raise
    finally:
        process.terminate()
        process.join()
