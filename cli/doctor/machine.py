"""The machine: disk, memory, open files, and the clock."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headworks._cli.doctor.diagnosis import Diagnosis, note, ok, problem
from producer_sdk._context import default_state_dir

_GIB = 1 << 30
_LOW_DISK_BYTES = 1 * _GIB
_SMALL_DISK_BYTES = 10 * _GIB
_SMALL_MEMORY_BYTES = 2 * _GIB
_FEW_FILES = 1024
_ENOUGH_FILES = 65_536
_MAX_SKEW_SECONDS = 2.0
_OLDEST_CLOCK_SECONDS = 1_767_225_600  # the year 2026: this release is younger
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_NTP_ERROR = 5  # TIME_ERROR: nothing synchronizes the clock


def machine(data_dir: Path) -> Iterator[Diagnosis]:
    """Check the machine on which servers keep their data in `data_dir`."""
    yield disk_diagnosis(data_dir)
    yield state_diagnosis(default_state_dir())
    yield memory_diagnosis(_memory_bytes())
    yield open_files_diagnosis(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield clock_diagnosis(time.time(), _file_clock(data_dir), synchronized=_synchronized())


def disk_diagnosis(data_dir: Path) -> Diagnosis:
    """Return whether the data folder can be written, and how much room it has."""
    subject = f"data_dir {data_dir}"
    folder = _existing(data_dir)
    if not folder.is_dir():
        return problem(subject, f"{folder} is not a folder", "name another with --data-dir")
    if not os.access(folder, os.W_OK | os.X_OK):
        return problem(
            subject,
            f"{folder} cannot be written by this user",
            "change its owner, or name another folder: data_dir, or $HEADWORKS_DATA_DIR",
        )
    free = shutil.disk_usage(folder).free
    text = f"{free / _GIB:.1f} GiB are free"
    if free < _LOW_DISK_BYTES:
        return problem(subject, text, "free some, or put data_dir on a larger disk")
    if free < _SMALL_DISK_BYTES:
        fix = "limit the topics (retention.bytes), or put data_dir on a larger disk"
        return note(subject, text, fix)
    return ok(subject, text)


def state_diagnosis(folder: Path) -> Diagnosis:
    """Return whether producers can keep their counts where they do by default."""
    above = _existing(folder)
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return ok("state_dir", f"producers keep their counts in {folder}")
    return note(
        "state_dir",
        f"{above} cannot be written by this user, so Producer() fails here",
        "give Producer a state_dir, or set XDG_STATE_HOME to a folder that stays",
    )


def memory_diagnosis(available: int) -> Diagnosis:
    """Return whether the memory of this machine, or of this container, will do."""
    text = f"{available / _GIB:.1f} GiB, {os.cpu_count()} CPUs"
    if available < _SMALL_MEMORY_BYTES:
        return note("memory", text, "give it 2 GiB if it loads or queries: Spark's JVM takes 1 GiB")
    return ok("memory", text)


def open_files_diagnosis(soft: int, hard: int) -> Diagnosis:
    """Return whether the limit of open files will do; the broker raises `soft` to `hard`."""
    limit = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else hard
    text = (
        f"at most {'unlimited' if hard == resource.RLIM_INFINITY else f'{hard:,}'} (now {soft:,})"
    )
    fix = f"raise it: `ulimit -n {_ENOUGH_FILES}`, or LimitNOFILE={_ENOUGH_FILES} in the unit"
    if limit < _FEW_FILES:
        return problem("open files", text, fix)
    if limit < _ENOUGH_FILES:
        return note("open files", f"{text}; a broker takes one per segment and connection", fix)
    return ok("open files", text)


def clock_diagnosis(
    now: float, file_clock: float | None, *, synchronized: bool | None
) -> Diagnosis:
    """Return whether the clock is plausible, and agrees with the disk's (a network disk has one).

    `synchronized` is what the kernel says about NTP, or None if it does not say.
    """
    if now < _OLDEST_CLOCK_SECONDS:
        year = time.gmtime(now).tm_year
        return problem("clock", f"it is in the year {year}", "set it: timedatectl set-ntp true")
    if file_clock is not None and abs(file_clock - now) > _MAX_SKEW_SECONDS:
        skew = f"{abs(file_clock - now):.0f} s"
        fix = "synchronize both machines: timedatectl set-ntp true"
        return problem("clock", f"it differs by {skew} from that of the data folder's disk", fix)
    if synchronized is False:
        fix = "timedatectl set-ntp true, unless the host of this machine does so"
        return note("clock", "the kernel does not know whether it is synchronized", fix)
    return ok("clock", "plausible" if synchronized is None else "synchronized")


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.resolve().parent
    return folder


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(_CGROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return total


def _file_clock(data_dir: Path) -> float | None:
    """Return the time that the disk gives a new file, or None if none can be made."""
    try:
        with tempfile.TemporaryFile(dir=_existing(data_dir)) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return None


def _synchronized() -> bool | None:
    """Return whether the kernel knows the clock to be synchronized (ntp_gettime, Linux)."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "ntp_gettime"):
        return None
    answer = library.ntp_gettime(ctypes.create_string_buffer(256))
    return None if answer < 0 else answer != _NTP_ERROR
