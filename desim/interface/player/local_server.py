"""The page of a run that plays, served to this machine alone by the standard library.

The server reads the run's directory as it grows, and the run knows nothing of it. It answers at one
address that nobody can guess, to requests that name this machine as their host, with two things:
the page, and what is new. No path of the disk is ever made of what is asked. What takes long to
import is imported when it is first asked for, so that the address is there at once.
"""

import secrets
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hmac import compare_digest
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isfinite
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from desim.amounts import duration
from desim.errors import DesimError, InputError
from desim.interface.cli.progress import heedless
from desim.runs.directory import MANIFEST, STUDY, busy, pulse
from desim.runs.run import Run, open_run

if TYPE_CHECKING:
    from desim.interface.player.moves import Reading

HERE = "127.0.0.1"
PAUSE = 0.5  # s between two looks at the directory
GRACE = 10.0  # s for which a page may still be told how its run has ended
ASKING = 3.0  # s without a question after which a page has been closed
PATIENCE = 1.0  # s for which a request waits for what is being read
SHARE = 0.2  # of a processor, at most, that reading a run again takes, and accounting for it
LEAST, PART = 10.0, 0.25  # s, and share of what has passed, over which a pace is taken at least
MAX_THREADS = 24  # connections at once; whoever has asked nothing for longest makes room
SILENCE = 10.0  # s after which a connection on which nothing was asked is closed
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

    def left(self, run: Run, end: float, rounds: int, when: float) -> tuple[str, float]:
        """How long it will take, in words with {} for that, from what it is known; when it ends, s.

        end s of virtual time and rounds were done at `when` s of real time; inf: nobody knows.
        """
        stop = run.written.get("stop") or {}
        parts = {
            f"round {rounds} of {stop.get('rounds')}": _share(rounds, stop.get("rounds")),
            f"{end:.4g} s of {stop.get('time')} s": _share(end, stop.get("time")),
        }
        said, share = max(parts.items(), key=lambda one: one[1])
        if share <= 0.0:
            limits = stop.get("rounds") or stop.get("time")
            text = "not known yet: nothing is done" if limits else "not known: no limit is set"
            return text, float("inf")
        if share >= 1.0:
            return "all is played, and is being stored", float("inf")
        if not self.samples or share > self.samples[-1][1]:
            self.samples.append((when, share))
        ended, has = self.samples[-1]
        window = max(LEAST, PART * (ended - self.samples[0][0]))
        began, had = max(
            (one for one in self.samples if ended - one[0] >= window), default=self.samples[0]
        )
        if has <= had or ended <= began:
            return f"not known yet: {said}", float("inf")
        rest = (1.0 - has) * (ended - began) / (has - had)
        early = ", sooner where a target of stop.metric is met" if stop.get("metric") else ""
        taken = duration(ended - began)
        return f"about {{}}: {said}, at the pace of the last {taken}{early}", ended + rest


def _share(done: float, limit: Any) -> float:
    known = isinstance(limit, int | float) and limit > 0
    return min(done / limit, 1.0) if known else 0.0


# The run, read again when its directory has changed.

FOLLOWS = "the page goes on to the next one that plays for seconds when it is over."
NEWEST = 20  # runs of a study that are looked at


def run_in(place: Path, before: Path) -> Path:
    """Where the run is: `place`, or, of a study there, a run that plays, or the latest.

    before: the one that was shown, which is shown until it is over.
    """
    if not (place / STUDY).is_file():
        return place
    if before != place and busy(before):
        return before
    begun = [(one.stat().st_mtime, one.parent) for one in place.glob(f"runs/*/{MANIFEST}")]
    newest = [one for _, one in sorted(begun, reverse=True)[:NEWEST]]
    return next((one for one in newest if busy(one)), newest[0] if newest else place)


def has_begun(place: Path) -> bool:
    """Whether there is a run, or one of a study."""
    return (run_in(place, place) / MANIFEST).exists()


UNREAD: dict[str, Any] = {  # of a run of which nothing could be read yet
    "status": "", "reason": "", "plays": True, "left": "", "over_at": None, "curves": [],
    "notes": [],
    "privacy": {"said": "", "terms": "", "why": "", "doubts": []},
}  # fmt: skip


class Watched:
    """The run in a directory, or the one that plays of a study in it, as its page sees it.

    said: number of the scene, higher where it is another one and 0 before the first; the scene; and
    the scene as JSON. All three at once, as requests read them while the run is read again.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.place, self.path = path, run_in(path, path)
        self.said: tuple[int, dict[str, Any], str] = 0, {**UNREAD, "name": path.name}, ""
        self.pace = Pace()
        self._clock, self._rested, self._charged = clock, 0.0, 0.0
        self._spent: dict[str, Any] | None = None
        self._log: Reading | None = None
        self._which: Any = None
        self._mark: Any = None
        self._trouble = ""
        self._ended: dict[str, str] = {}
        self._lock, self._saying = threading.Lock(), threading.Lock()
        self._reader: threading.Thread | None = None
        open_run(self.path)

    def refresh(self, patience: float | None = None) -> None:
        """Have a thread read the run again, if none does, and wait for it, for patience s at most.

        A long log takes longer than a browser waits for an answer.
        """
        with self._lock:
            self.path = run_in(self.place, self.path)
            self._hear_of_the_end()
            if self._reader is None or not self._reader.is_alive():
                self._reader = threading.Thread(target=self._refresh, daemon=True)
                self._reader.start()
            reader = self._reader
        reader.join(patience)

    def _hear_of_the_end(self) -> None:
        """Say at once how a run has ended: to read its whole log once more takes a while."""
        if not self.said[1]["plays"] or self._ended or not self.said[0] or busy(self.path):
            return
        with suppress(DesimError, OSError):
            run = open_run(self.path)
            if run.status != "running":
                reason = run.manifest.get("reason") or ""
                self._ended = {"status": run.status, "reason": str(reason), "left": ""}
                self._say(self.said[1])

    def _refresh(self) -> None:
        """Read the run again if it has changed, and not too much time is spent on it.

        One that nobody writes any more is read at once.
        """
        path = self.path
        mark = str(path), pulse(path)
        if mark == self._mark or (mark[1][0] and self._clock() < self._rested):
            return
        try:
            self._read(open_run(path), path, mark)
        except (DesimError, OSError) as error:  # its parts became files, or it is gone
            again = str(error) == self._trouble
            self._trouble = str(error)
            version, seen, _ = self.said
            if again or not version:
                self._mark = mark
                self._say({**seen, "trouble": self._trouble})

    def _read(self, run: Run, path: Path, mark: Any) -> None:
        """Make a new scene of the run."""
        from desim.interface.player.moves import last_time
        from desim.interface.player.scene import privacy, reading_of, scene
        from desim.interface.reports.readable import readings

        began, plays = time.thread_time(), run.status == "running"
        which = run.manifest.get("scenario_sha256"), path.stat().st_ino
        if which != self._which:  # another run has replaced it
            self._log, self._which, self._charged, self.pace = None, which, 0.0, Pace()
            self._ended = {}
        if self._log is None or self._log.plays != plays:
            self._log = reading_of(run, plays)
        if self._clock() >= self._charged or not plays:
            # Apart: of many releases it takes longer than the rest.
            until = last_time(run.store.pieces("events", ["time"])) if plays else float("inf")
            self._spent = privacy(readings([run])[0])
            until = max([until, *self._spent.get("time", ())[-1:]])  # read later, and has more
            self._spent |= {"until": until} if plays else {}
            took = time.thread_time() - began
            self._charged = self._clock() + took / SHARE
            began += took
        seen = scene(run, self._log, self._spent)
        if plays:
            rounds = max([one["turns"] for one in seen["curves"]] + [seen.get("turns", 0)])
            when = max(written for _, written in mark[1][1:])
            seen["left"], over = self.pace.left(run, seen.get("end", 0.0), rounds, when)
            seen["over_at"] = over if isfinite(over) else None
        self._mark, self._trouble = mark, ""
        seen["run"] = str(which)
        if path != self.place:
            seen["notes"].insert(0, f"This is run {path.name} of {self.place.name}: {FOLLOWS}")
        self._say(seen)
        self._rested = self._clock() + (time.thread_time() - began) / SHARE

    def _say(self, seen: dict[str, Any]) -> None:
        from desim.interface.reports.page import embedded

        with self._saying:
            version = self.said[0] + 1
            seen = {**seen, "version_seen": version, "asks": True}
            seen |= self._ended if seen["plays"] else {}
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
    """Answers to this machine, at one address: `url`. InputError for a port that is taken.

    waiting: connections on which nothing was asked yet, the oldest first, and since when s.
    """

    daemon_threads = True

    def __init__(self, watched: Watched, port: int = 0) -> None:
        self.watched, self.secret = watched, secrets.token_urlsafe(16)
        self.asked_at, self.sent = -ASKING, 0  # when s a page asked last, and what it got then
        self.waiting: dict[socket.socket, float] = {}
        self._room = threading.Condition()
        self._answering = 0
        try:
            super().__init__((HERE, port), Answers)
        except (OSError, OverflowError) as error:
            raise _taken(port, error) from None

    def server_bind(self) -> None:
        """Bind, and ask no name server who this is."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HERE, self.server_address[1]

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HERE}:{self.server_port}/{self.secret}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; whoever has waited for too long to ask makes room for it."""
        now = time.monotonic()
        with self._room:
            late = [one for one, since in self.waiting.items() if now - since > SILENCE]
            full = self._answering >= MAX_THREADS
            for one in late or (list(self.waiting)[:1] if full else []):
                self.heard(one)
                with suppress(OSError):  # its thread reads that nothing more comes
                    one.shutdown(socket.SHUT_RDWR)
            if full and not self._room.wait_for(lambda: self._answering < MAX_THREADS, PAUSE):
                self.shutdown_request(request)
                return
            self.waiting[request] = now
            self._answering += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._room:
                self.heard(request)
                self._answering -= 1
                self._room.notify()

    def heard(self, request: Any) -> None:
        """Something was asked on this connection, or never will be."""
        with self._room:
            self.waiting.pop(request, None)

    def owes(self) -> bool:
        """Whether a page that is open has not been sent yet how its run has ended."""
        version, seen, _ = self.watched.said
        knows = not seen["plays"] and self.sent == version
        return not knows and time.monotonic() - self.asked_at < ASKING

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone meanwhile."""


def _taken(port: int, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    text = f"found {port}, which is not to be had ({reason})"
    return InputError(f"--port: {text}; allowed: a free one, 1 to 65535, or none")


def _page_of(name: str, said: tuple[int, dict[str, Any], str]) -> str:
    """The page of what is known by now, or one that asks again in a second."""
    version, seen, _ = said
    if not version:
        return EARLY.format(escape(name))
    from desim.interface.player.animated import page

    return page(seen)


class Answers(BaseHTTPRequestHandler):
    """Answers one request: `GET /secret/`, the page, or `/secret/scene?since=N`, what is new."""

    server: LocalServer
    timeout = SILENCE
    server_version, sys_version = "desim", ""

    def do_GET(self) -> None:
        """Answer, or refuse whoever does not know the secret, or comes by another name."""
        server = self.server
        server.heard(self.request)
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
            return
        server.asked_at = time.monotonic()
        if rest[0] == "":
            server.watched.refresh(PATIENCE)
            said = server.watched.said
            self._send("text/html", _page_of(server.watched.place.name, said))
            server.sent = said[0]
        elif rest[0] == "scene":
            server.watched.refresh(PATIENCE)
            version, _, text = server.watched.said
            since = parse_qs(asked.query).get("since", [""])[-1]
            self._send("application/json", text if version and since != str(version) else "null")
            server.sent = version
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


def serve(
    path: Path, port: int, wait: bool, tell: Callable[[str], None],
    leaves: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Serve the page of the run at `path` until Ctrl-C; wait: for a run that has not begun.

    tell(text): is called with the page's address; leaves(): whether to end as soon as a page that
    is open knows how the run has ended. InputError where there is no run.
    """
    with suppress(KeyboardInterrupt):
        threading.Thread(target=_import, daemon=True).start()
        while wait and not has_begun(path) and _wanted():
            if leaves():
                return
            time.sleep(PAUSE)
        with LocalServer(Watched(path), port) as server:
            tell(f"watching {path} at {server.url} (Ctrl-C ends it)")
            threading.Thread(target=server.watched.refresh, daemon=True).start()  # is soon ready
            server.timeout = PAUSE
            while _wanted() and not (leaves() and not server.owes()):
                server.handle_request()


def require_future(path: Path, port: int) -> None:
    """InputError where no run can begin, or no page be served when it does."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; allowed: a directory, new or of a run or study")
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HERE, port))
        except (OSError, OverflowError) as error:
            raise _taken(port, error) from None


def _import() -> None:
    """Import meanwhile what the first reading needs, which takes seconds."""
    from desim.interface.player import animated  # noqa: F401


def _wanted() -> bool:
    """Whether who has begun this process, if it is another's, still lives."""
    parent = parent_process()
    return parent is None or parent.is_alive()


def _serve_until_ended(path: Path, tell: Callable[[str], None]) -> None:
    """Serve the page of a run of the process that has begun this one, until it ends this one."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    serve(path, 0, True, tell, ended.is_set)


@contextmanager
def beside(path: Path, tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """A process of its own that serves the page of the run which begins at `path` in the context.

    Yield what waits for Ctrl-C, which a terminal sends to both: the other does not hear it, so that
    a page that is open is told how the run has ended, however that was.
    """
    kind = get_context("spawn").Process
    process = kind(target=_serve_until_ended, args=(path, tell), daemon=True)
    with heedless(True):
        process.start()

    def wait() -> None:
        with suppress(KeyboardInterrupt):
            process.join()

    try:
        yield wait
    finally:
        try:
            process.terminate()
            process.join(GRACE)
        finally:
            process.kill()
            process.join()
