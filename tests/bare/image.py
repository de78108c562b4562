"""The images of deploy/Containerfile, built and run where there is no container engine.

`python -m tests.bare.image [server|spark]` follows the Containerfile's instructions up to that
stage. Then it runs the services of compose.yaml that are Headworks', with their health checks. With
`spark` that is the loader, too, which loads an event and answers a query. It prints seconds and
megabytes, and needs root, debootstrap, git, and a Debian mirror.

Emulated:

- The base is Debian's packages with Debian's own Python, and not the image `python:3.13-slim`.
- An instruction changes a folder, and a stage is a copy of a folder. There are no layers.
- Namespaces, the user, the dropped capabilities, and the read-only root are the kernel's own, as an
  engine sets them up. There are no cgroups, no seccomp filter, and no published ports.

Rule: nothing outside the temporary folder is written.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from tests.waiting import until

CHECKOUT = Path(__file__).parent.parent.parent
DEPLOY = CHECKOUT / "deploy"
TARGETS = ("server", "spark")
STATE = "/var/lib/headworks"
_SUITE = "bookworm"
_PACKAGES = "ca-certificates,python3,python3-dev,python3-venv,python-is-python3"
_SERVICES = ("broker", "registry", "schemas", "audit", "console")
_QUERY = "headworks sql --hive 127.0.0.1:10000"
_EVENT = '{"customer": "ada", "placed_at": "2026-05-01T12:00:00Z", "items": 3}'
_SCHEMA = {
    "type": "record",
    "name": "shop.OrderPlaced",
    "headworks": {"topic": "orders", "event_time": "placed_at", "key": ["customer"]},
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "items", "type": "int"},
    ],
}
_PATIENCE_SECONDS = 120.0
_LOAD_PATIENCE_SECONDS = 400.0
_QUERY_EVERY_SECONDS = 5.0
_INTERFACE_REQUEST = "16sh14x"  # struct ifreq: name and flags (netdevice(7))


@dataclass
class Image:
    """A stage: its files, and how it is run."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


class Build:
    """Follows the instructions of a Containerfile."""

    def __init__(self, folder: Path, base: Path) -> None:
        self._folder = folder
        self._base = base
        self.stages: dict[str, Image] = {}
        self._image = Image(base)
        self._target = ""

    def follow(self, text: str, target: str) -> Image:
        """Return the image of `target`; the stages after it are not built."""
        self._target = target
        for line in text.replace("\\\n", "").splitlines():
            instruction, _, rest = line.strip().partition(" ")
            if instruction == "FROM" and target in self.stages:
                break
            if instruction and not instruction.startswith("#"):
                getattr(self, f"_{instruction.lower()}")(rest.strip())
        return self.stages[target]

    def _from(self, rest: str) -> None:
        origin, _, name = rest.split()
        if "spark" in name and self._target == "server":
            self._image = Image(self._folder / "not-built")
            return
        print(f"FROM {rest}")
        root = self._folder / name
        before = self.stages.get(origin)
        copy(before.root if before else self._base, root)
        image = replace(before, environment=dict(before.environment)) if before else Image(root)
        self._image = self.stages[name] = replace(image, root=root)

    def _run(self, rest: str) -> None:
        if self._image.root.is_dir():
            timed(f"RUN {rest[:60]}", self._image.root, lambda: in_root(self._image.root, rest))

    def _copy(self, rest: str) -> None:
        if not self._image.root.is_dir():
            return
        words = rest.split()
        if words[0].startswith("--from="):
            source = self.stages[words[0].removeprefix("--from=")].root / words[1].lstrip("/")
            copy(source, self._image.root / words[2].lstrip("/"))
            return
        to = self._image.root / words[1].lstrip("/")
        to.mkdir()
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=CHECKOUT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(to)], input=archive.stdout, check=True)

    def _env(self, rest: str) -> None:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        for assignment in shlex.split(rest):
            name, _, value = assignment.partition("=")
            self._image.environment[name] = value.replace("$PATH", path)

    def _user(self, rest: str) -> None:
        self._image.user = rest

    def _workdir(self, rest: str) -> None:
        self._image.folder = rest

    def _entrypoint(self, rest: str) -> None:
        self._image.entrypoint = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self._image.command = json.loads(rest)

    def _volume(self, rest: str) -> None:
        assert rest == STATE, rest

    def _expose(self, rest: str) -> None:
        assert rest, "EXPOSE without a port"


class Engine:
    """Runs containers of one image, which share a network and a volume, as compose.yaml says."""

    def __init__(self, image: Image, volume: Path) -> None:
        self.image = image
        self._volume = volume

    def start(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a command with a read-only root and no rights, as the image's user."""
        root = self.image.root
        mounts = [
            "mount --make-rprivate /",
            f"mount --bind {root} {root}",
            f"mount --bind {self._volume} {root}{STATE}",
            f"mount -t tmpfs tmpfs {root}/tmp",
            f"mount -t proc proc {root}/proc",
            f"mount --bind -o ro /dev {root}/dev",
            f"mount -o remount,bind,ro {root}",
        ]
        user, _, group = self.image.user.partition(":")
        dropped = f"--reuid={user} --regid={group} --clear-groups --inh-caps=-all"
        rights = f"setpriv {dropped} --bounding-set=-all --no-new-privs"
        variables = [f"{name}={value}" for name, value in self.image.environment.items()]
        command = shlex.join(["env", "-i", "-C", self.image.folder, *variables, *arguments])
        inside = f"{' && '.join(mounts)} && exec chroot {root} {rights} {command}"
        namespaces = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        with log.open("ab") as output:
            return subprocess.Popen(
                ["unshare", *namespaces, "sh", "-c", inside], stdout=output, stderr=output
            )

    def run(self, arguments: Sequence[str], log: Path) -> int:
        """Run a command to its end, and return its exit code."""
        return self.start(arguments, log).wait(_PATIENCE_SECONDS)


def copy(source: Path, to: Path) -> None:
    """Copy a folder with its owners, modes, and links."""
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(to)], check=True)


def in_root(root: Path, command: str) -> None:
    """Run a shell command in a root, with the network and pip's settings of this machine."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    for path in (Path("/etc/resolv.conf"), certificates):
        if path.is_file():
            shutil.copy(path, root / path.relative_to("/"))
    environment = {**kept, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["chroot", str(root), "/bin/sh", "-c", command],
        env={**environment, "PIP_CERT": str(certificates), "DEBIAN_FRONTEND": "noninteractive"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: {command!r} failed in {root}:\n{done.stdout.decode()[-3000:]}")


def timed(title: str, kept: Path | None, work: Callable[[], object]) -> None:
    """Do the work, and print what it took, and how large the folder is after it."""
    began = time.monotonic()
    work()
    size = ""
    if kept is not None:
        du = subprocess.run(["du", "-sm", str(kept)], capture_output=True, text=True, check=True)
        size = f"{du.stdout.split()[0]:>6} MB"
    print(f"{title:<64} {time.monotonic() - began:6.1f} s {size}", flush=True)


def raise_loopback() -> None:
    """Switch on the loopback interface of this network namespace."""
    up, get, put = 0x1, 0x8913, 0x8914  # IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack(_INTERFACE_REQUEST, b"lo", 0)
        flags = struct.unpack(_INTERFACE_REQUEST, fcntl.ioctl(any_socket, get, request))[1]
        fcntl.ioctl(any_socket, put, struct.pack(_INTERFACE_REQUEST, b"lo", flags | up))


def run_services(folder: Path, image: Image, *, loads: bool) -> None:
    """Run the services of compose.yaml until each is healthy, look at them, and stop them."""
    raise_loopback()
    volume = folder / "volume"
    copy(image.root / STATE.lstrip("/"), volume)
    # An engine also enters the container's own name, which Headworks does not need.
    (image.root / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    engine = Engine(image, volume)
    check_confinement(engine, folder)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in _SERVICES:
            timed(f"{name}: healthy", None, partial(start_service, name, engine, folder, running))
        timed("console: its first page", None, lambda: until(page_of_console, _PATIENCE_SECONDS))
        if loads:
            load_and_query(engine, folder, running)
        for name, process in reversed(running.items()):
            timed(f"{name}: stopped by SIGTERM", None, partial(stop, process))
            assert process.returncode == 0, (name, (folder / f"{name}.log").read_text()[-3000:])
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            print(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        for process in running.values():
            kill(process)


def load_and_query(
    engine: Engine, folder: Path, running: dict[str, subprocess.Popen[bytes]]
) -> None:
    """Send an event, run the loader of compose.yaml, and query the event's table."""
    log = folder / "load-and-query.log"
    (folder / "volume" / "orders.avsc").write_text(json.dumps(_SCHEMA), encoding="utf-8")
    send = f"headworks schema register orders.avsc && echo '{_EVENT}' | headworks produce orders"
    assert engine.run(["sh", "-c", send], log) == 0, log.read_text()

    def is_loaded() -> bool:
        assert running["load"].poll() is None, "the loader ended"
        time.sleep(_QUERY_EVERY_SECONDS)  # each query takes the loader's processor for a second
        done = engine.run(["sh", "-c", f"{_QUERY} 'SELECT customer, items FROM orders'"], log)
        return done == 0 and "ada           3" in log.read_text()

    start_service("load", engine, folder, running)
    title = "load: the event is in its table"
    timed(title, None, lambda: until(is_loaded, _LOAD_PATIENCE_SECONDS))


def start_service(
    name: str, engine: Engine, folder: Path, running: dict[str, subprocess.Popen[bytes]]
) -> None:
    """Start a service of compose.yaml, and wait until its health check passes."""
    service: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][
        name
    ]
    log = folder / f"{name}.log"
    command = [*engine.image.entrypoint, *shlex.split(service["command"])]
    if service.get("restart") == "on-failure":  # a command that ends by itself
        assert engine.run(command, log) == 0, log.read_text()
        return
    running[name] = engine.start(command, log)
    check = service.get("healthcheck", {}).get("test", [])[1:]
    if check:
        until(lambda: engine.run(check, log) == 0, _PATIENCE_SECONDS)


def check_confinement(engine: Engine, folder: Path) -> None:
    """See that a container is what the Containerfile promises."""
    log = folder / "confinement.log"
    questions = "id -u; touch /opt/x /etc/x; touch /tmp/x /var/lib/headworks/x && echo written"
    engine.run(["sh", "-c", f"{questions}; grep CapEff /proc/self/status"], log)
    answers = log.read_text()
    assert answers.startswith("10001\n"), answers
    assert answers.count("Read-only file system") == 2, answers
    assert "written" in answers, answers
    assert "CapEff:\t0000000000000000" in answers, answers
    print("user 10001, no capability, read-only root, writable /tmp and volume")


def page_of_console() -> bool:
    """Whether the console answers, and knows its broker and registry."""
    try:
        with urlopen("http://127.0.0.1:8090/schemas.json", timeout=10) as answer:
            return "headworks" in answer.read().decode()
    except OSError:
        return False


def first_process(process: subprocess.Popen[bytes]) -> int:
    """Return the container's first process: with it, the kernel ends all others."""
    (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(first)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the container's first process, and wait for it."""
    os.kill(first_process(process), signal.SIGTERM)
    process.wait(_PATIENCE_SECONDS)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a container that still runs. `unshare` cannot: its child has changed its user."""
    if process.poll() is None:
        os.kill(first_process(process), signal.SIGKILL)
        process.wait(_PATIENCE_SECONDS)


def main() -> None:
    target = (sys.argv[1:] or [TARGETS[0]])[0]
    if target not in TARGETS:
        sys.exit(f"error: {target!r} is no image\n  fix: give one of {', '.join(TARGETS)}")
    folder = Path(tempfile.mkdtemp(prefix="headworks-image-"))
    try:
        base = folder / "base"
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE]
        timed(
            f"debootstrap {_SUITE}",
            base,
            lambda: subprocess.run([*bootstrap, str(base)], check=True, stdout=subprocess.DEVNULL),
        )
        subprocess.run(["umount", str(base / "proc")], capture_output=True, check=False)
        stages = folder / "stages"
        stages.mkdir()
        build = Build(stages, base)
        image = build.follow((DEPLOY / "Containerfile").read_text(encoding="utf-8"), target)
        timed("/opt/headworks in the image", image.root / "opt/headworks", lambda: None)
        pid = os.fork()  # a network of its own, as compose.yaml's containers share one
        if pid == 0:
            import ctypes

            assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0  # CLONE_NEWNET
            run_services(folder, image, loads=target == "spark")
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
