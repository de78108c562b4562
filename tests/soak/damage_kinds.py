"""The kinds of damage to a broker's data folder. Each returns what it did, None if nothing fits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

Harm = Callable[[Path, Random], str | None]


def _flip(path: Path, random: Random) -> str | None:
    content = bytearray(path.read_bytes())
    if not content:
        return None
    at, bit = random.randrange(len(content)), random.randrange(8)
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {at} of {path.name} flipped"


def _overwrite(path: Path, random: Random) -> str | None:
    content = bytearray(path.read_bytes())
    if not content:
        return None
    at = random.randrange(len(content))
    noise = random.randbytes(random.randint(1, 40))
    content[at : at + len(noise)] = noise[: len(content) - at]
    path.write_bytes(content)
    return f"{len(noise)} bytes of {path.name} overwritten at {at}"


def _zero(path: Path, random: Random) -> str | None:
    content = bytearray(path.read_bytes())
    if len(content) < 600:
        return None
    at = random.randrange(len(content) - 512)
    content[at : at + 512] = bytes(512)
    path.write_bytes(content)
    return f"512 zeros in {path.name} at {at}"


def _insert(path: Path, random: Random) -> str | None:
    content = path.read_bytes()
    if not content:
        return None
    at = random.randrange(len(content))
    noise = random.randbytes(random.randint(1, 200))
    path.write_bytes(content[:at] + noise + content[at:])
    return f"{len(noise)} bytes inserted into {path.name} at {at}"


def _cut(path: Path, random: Random) -> str | None:
    size = path.stat().st_size
    if not size:
        return None
    left = size - random.randint(1, min(size, 300))
    os.truncate(path, left)
    return f"{path.name} of {size} bytes cut to {left}"


def _halve(path: Path, _: Random) -> str | None:
    size = path.stat().st_size
    os.truncate(path, size // 2)
    return f"{path.name} of {size} bytes cut to its half" if size else None


def _empty(path: Path, _: Random) -> str | None:
    size = path.stat().st_size
    os.truncate(path, 0)
    return f"{path.name} emptied" if size else None


def _delete(path: Path, _: Random) -> str:
    path.unlink()
    return f"{path.name} deleted"


def _garbage(path: Path, random: Random) -> str:
    path.write_bytes(random.randbytes(random.randint(1, 3000)))
    return f"{path.name} replaced by garbage"


def _append(path: Path, random: Random) -> str:
    noise = random.randbytes(random.randint(1, 300)) if random.random() < 0.7 else bytes(4096)
    with path.open("ab") as file:
        file.write(noise)
    return f"{len(noise)} bytes behind the end of {path.name}"


def _swap(path: Path, random: Random) -> str | None:
    others = [one for one in path.parent.glob(f"*{path.suffix}") if one != path]
    if not others:
        return None
    other = random.choice(others)
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return f"{path.name} and {other.name} swapped"


def _replace(path: Path, random: Random) -> str | None:
    others = [one for one in path.parent.glob(f"*{path.suffix}") if one != path]
    if not others:
        return None
    other = random.choice(others)
    shutil.copy(other, path)
    return f"{path.name} replaced by {other.name}"


def _copy_beyond(path: Path, random: Random) -> str:
    base = int(path.stem) + random.randint(1, 300)
    target = path.with_name(f"{base:020d}{path.suffix}")
    shutil.copy(path, target)
    return f"{path.name} copied to {target.name}"


def _rename(path: Path, _: Random) -> str:
    path.rename(path.with_name(f"copy-{path.name}"))
    return f"{path.name} renamed"


FILE_KINDS: Mapping[str, Harm] = {
    "flipped": _flip,
    "overwritten": _overwrite,
    "zeroed": _zero,
    "inserted into": _insert,
    "cut": _cut,
    "halved": _halve,
    "emptied": _empty,
    "deleted": _delete,
    "garbage": _garbage,
    "appended to": _append,
    "swapped": _swap,
    "replaced": _replace,
    "copied": _copy_beyond,
    "renamed": _rename,
}


def _in(pattern: str, harm: Harm, *, newest: bool | None = None) -> Harm:
    """Do harm to a random file of this pattern; `newest` tells active from sealed segments."""

    def to_one(data: Path, random: Random) -> str | None:
        paths = sorted(data.glob(pattern))
        if newest is not None:
            last = {max(folder.glob("*.log")) for folder in (data / "logs").iterdir()}
            paths = [path for path in paths if (path in last) is newest]
        if not paths:
            return None
        path = random.choice(paths)
        done = harm(path, random)
        return None if done is None else f"{path.parent.name}: {done}"

    return to_one


def _folder_gone(data: Path, random: Random) -> str:
    folder = random.choice(sorted((data / "logs").iterdir()))
    shutil.rmtree(folder)
    return f"{folder.name} deleted"


def _folder_empty(data: Path, random: Random) -> str:
    folder = random.choice(sorted((data / "logs").iterdir()))
    shutil.rmtree(folder)
    folder.mkdir()
    return f"{folder.name} emptied"


def _logs_gone(data: Path, _: Random) -> str:
    shutil.rmtree(data / "logs")
    return "logs deleted"


def _stray(data: Path, random: Random) -> str:
    logs = data / "logs"
    name = random.choice(["lost+found", "t-0.bak", "t-7", "x"])
    if name == "t-0.bak":
        shutil.copytree(logs / "t-0", logs / name)
    else:
        (logs / name).mkdir()
    return f"{name} beside the logs"


def _staged(data: Path, random: Random) -> str:
    folder = random.choice(sorted((data / "logs").iterdir()))
    (folder / "00000000000000000000.cleaned-9").write_bytes(random.randbytes(100))
    return f"{folder.name}: an unfinished compaction"


def _kinds() -> dict[str, Harm]:
    kinds: dict[str, Harm] = {
        "folder deleted": _folder_gone,
        "folder emptied": _folder_empty,
        "logs deleted": _logs_gone,
        "stray folder": _stray,
        "unfinished compaction": _staged,
    }
    for name, harm in FILE_KINDS.items():
        kinds[f"active segment {name}"] = _in("logs/*/*.log", harm, newest=True)
        kinds[f"sealed segment {name}"] = _in("logs/*/*.log", harm, newest=False)
        if name in ("flipped", "overwritten", "cut", "emptied", "deleted", "garbage", "replaced"):
            kinds[f"index {name}"] = _in("logs/*/*.index", harm)
            kinds[f"producers {name}"] = _in("logs/*/*.producers", harm)
        if name in ("flipped", "overwritten", "cut", "emptied", "deleted", "garbage"):
            for file in ("recovery-point", "start-offset", "compacted"):
                kinds[f"{file} {name}"] = _in(f"logs/*/{file}", harm)
            kinds[f"partitions {name}"] = _in("partitions", harm)
            kinds[f"lock {name}"] = _in("lock", harm)
        if name not in ("swapped", "replaced", "copied", "renamed"):
            kinds[f"store {name}"] = _in("coordination.sqlite", harm)
    return kinds


KINDS: Mapping[str, Harm] = _kinds()
