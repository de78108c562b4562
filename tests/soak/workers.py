"""Producers in the worker processes of every kind of server, whose end must lose nothing.

Rules:

- Each round is one program: workers that send, and an end as its operator ends it. Afterwards every
  event is in the log, or the program's output says how many are not. Its exit code is 0.
- Servers that are not installed are counted as missing. None is a dependency: `peers` is a folder
  into which pip has installed them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headworks._cli.stack.ports import free_ports
from tests.headworks.codec.generated_packages import environment
from tests.producer_sdk.events import Site, new_site
from tests.producer_sdk.test_workers import CHILDREN, EACH, PROGRAM, WORKERS
from tests.soak.state_folders import arrived, servers
from tests.waiting import until

_LONGEST_SECONDS = 180.0
_MOST_WRONG = 10
_LEFT = re.compile(r"(\d+) messages were not delivered")
MULTIPROCESSING = tuple(
    f"{workers} by {how}" for workers in WORKERS for how in ("fork", "forkserver", "spawn")
)
_SEND = """
import datetime as dt, os, pathlib, sys
from producer_sdk import Producer
from {package}.web import Visit
producer = None

def send(number):
    global producer
    if producer is None:
        producer = Producer({bootstrap!r}, {registry!r}, application="w",
                            state_dir=pathlib.Path({state!r}), audit_every=60,
                            registry_timeout=60)
    at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    for _ in range({each}):
        assert producer.send(Visit(user=str(number), at=at, seconds=5))
"""
_WEB = """
def application(environ, start_response):
    send(os.getpid())
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"sent"]
"""
_CELERY = """
from celery import Celery
app = Celery("program", broker="filesystem://", backend=None)
folder = {folder!r}
app.conf.broker_transport_options = {{
    "data_folder_in": folder, "data_folder_out": folder, "processed_folder": folder,
}}
app.conf.worker_hijack_root_logger = False

@app.task(name="work")
def work(number):
    send(number)
    with open(folder + "/../done", "a") as done:
        done.write("x")
"""
_GEVENT = """
send("before")
import gevent
gevent.joinall([gevent.spawn(send, number) for number in range({children} - 1)])
"""


@dataclass
class EndedWorkers:
    """The observations of a campaign; `wrong` must be empty."""

    rounds: Counter[str] = field(default_factory=Counter)
    missing: set[str] = field(default_factory=set)
    sent: int = 0
    told: int = 0  # events that a program said it had not delivered
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.rounds.items()))
        lines = [f"{self.sent} events, {self.told} reported as not delivered: {kinds}"]
        if self.missing:
            lines.append(f"not installed: {', '.join(sorted(self.missing))}")
        return "\n".join([*lines, f"{self.seconds:.0f} s", *self.wrong])


def campaign(folder: Path, count: int, peers: Path | None) -> EndedWorkers:
    """Run so many rounds of each kind, on servers of their own."""
    with servers(folder) as (bootstrap, registry):
        return end(folder, bootstrap, registry, [*MULTIPROCESSING, *_KINDS], count, peers)


def end(
    folder: Path, bootstrap: str, registry: str, kinds: list[str], count: int, peers: Path | None
) -> EndedWorkers:
    """Run so many rounds of these kinds."""
    report, began = EndedWorkers(), time.monotonic()
    for number in range(count):
        for kind in kinds:
            if len(report.wrong) >= _MOST_WRONG:
                break
            here = folder / f"{kind.replace(' ', '-')}-{number}"
            here.mkdir()
            _round(kind, new_site(here, bootstrap, registry), peers, report)
            shutil.rmtree(here, ignore_errors=True)
    report.seconds = time.monotonic() - began
    return report


def _round(kind: str, site: Site, peers: Path | None, report: EndedWorkers) -> None:
    folder = site.state.parent
    run = _KINDS.get(kind, _multiprocessing)
    environ = environment(folder)
    if peers is not None:
        environ["PYTHONPATH"] += os.pathsep + str(peers)
    try:
        code, output = run(kind, site, environ)
    except ModuleNotFoundError:
        report.missing.add(kind)
        return
    except Exception as error:
        report.wrong.append(f"{kind}: {error!r}")
        return
    found, sent = arrived(site.bootstrap, site.topic), CHILDREN * EACH
    told = sum(map(int, _LEFT.findall(output)))
    report.rounds[kind] += 1
    report.sent += sent
    report.told += told
    if code or found + told != sent or "Traceback" in output:
        report.wrong.append(f"{kind}: exit {code}, {found} of {sent} arrived: {output[-2000:]}")


def _values(site: Site) -> dict[str, object]:
    return {
        "bootstrap": site.bootstrap,
        "registry": site.registry,
        "state": str(site.state),
        "package": site.one.__name__.partition(".")[0],
        "each": EACH,
        "children": CHILDREN,
        "folder": str(site.state.parent / "queue"),
    }


def _write(site: Site, *parts: str) -> None:
    text = "".join(textwrap.dedent(part) for part in parts).format(**_values(site))
    (site.state.parent / "program.py").write_text(text)


def _run(site: Site, environ: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=site.state.parent,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def _multiprocessing(kind: str, site: Site, environ: dict[str, str]) -> tuple[int, str]:
    workers, how = kind.split(" by ")
    (site.state.parent / "program.py").write_text(
        textwrap.dedent(PROGRAM.format(**_values(site)) + WORKERS[workers].format(**_values(site)))
    )
    return _run(site, environ, "program.py", how, "after")


def _needs(module: str, environ: dict[str, str]) -> None:
    looked = subprocess.run(
        [sys.executable, "-c", f"import {module}"], env=environ, capture_output=True, check=False
    )
    if looked.returncode:
        raise ModuleNotFoundError(module)


def _served(
    site: Site, environ: dict[str, str], command: list[str], work: Callable[[], None]
) -> tuple[int, str]:
    """Run a server, let it work, and end it by SIGTERM."""
    folder = site.state.parent
    with (folder / "output").open("w+") as output:
        server = subprocess.Popen(
            command, cwd=folder, env=environ, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            work()
            server.send_signal(signal.SIGTERM)
            code = server.wait(_LONGEST_SECONDS)
        finally:
            server.kill()
            server.wait()
        output.seek(0)
        return code, output.read()


def _requests(port: int) -> None:
    def answer() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    for _ in range(CHILDREN):
        until(answer)


def _gunicorn(_kind: str, site: Site, environ: dict[str, str]) -> tuple[int, str]:
    _needs("gunicorn", environ)
    _write(site, _SEND, _WEB)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}"]
    return _served(site, environ, [*command, "program:application"], lambda: _requests(port))


def _uwsgi(_kind: str, site: Site, environ: dict[str, str]) -> tuple[int, str]:
    program = shutil.which("uwsgi", path=f"{environ['PYTHONPATH'].split(os.pathsep)[-1]}/bin")
    if program is None:
        raise ModuleNotFoundError("uwsgi")
    _write(site, _SEND, _WEB)
    (port,) = free_ports(1)
    # By default, SIGTERM ends a worker in the middle of a request, without its exit handlers.
    gracefully = ["--hook-master-start", "unix_signal:15 gracefully_kill_them_all"]
    options = ["--master", "--workers", "2", "--enable-threads", "--need-app", *gracefully]
    command = [program, "--http-socket", f"127.0.0.1:{port}", "--module", "program", *options]
    home = ["--home", sys.prefix] if sys.prefix != sys.base_prefix else []
    return _served(site, environ, [*command, *home], lambda: _requests(port))


def _celery(_kind: str, site: Site, environ: dict[str, str]) -> tuple[int, str]:
    _needs("celery", environ)
    _write(site, _SEND, _CELERY)
    folder = site.state.parent
    (folder / "queue").mkdir()
    command = [sys.executable, "-m", "celery", "-A", "program", "worker", "--pool", "prefork"]

    def work() -> None:
        send = f"import program\nfor n in range({CHILDREN}): program.work.delay(n)"
        code, output = _run(site, environ, "-c", send)
        assert code == 0, output
        done = folder / "done"
        until(lambda: done.exists() and len(done.read_text()) == CHILDREN)

    return _served(site, environ, [*command, "-c", "2", "--loglevel", "WARNING"], work)


def _gevent(_kind: str, site: Site, environ: dict[str, str]) -> tuple[int, str]:
    _needs("gevent", environ)
    _write(site, "from gevent import monkey\nmonkey.patch_all()\n", _SEND, _GEVENT)
    return _run(site, environ, "program.py")


_KINDS = {
    "celery prefork": _celery,
    "gunicorn": _gunicorn,
    "uWSGI": _uwsgi,
    "gevent": _gevent,
}
