"""dataclasses-avroschema, fetched into the scratch folder: never a dependency of the project."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.frame import Bench
from bench.sdk.events import Measured

_NAME = "dataclasses-avroschema"


def dataclasses_avroschema(bench: Bench, measured: Measured) -> Callable[[], object] | None:
    """A call that encodes the event with it, or None (and why) if it cannot be had."""
    folder = bench.folder / "peers"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), _NAME]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        bench.missing(_NAME, done.stderr.strip().splitlines()[-1] if done.stderr else "pip failed")
        return None
    sys.path.append(str(folder))
    try:
        event = _event(measured, folder)
    except Exception as error:
        bench.missing(_NAME, f"{type(error).__name__}: {error}")
        return None
    return lambda: event.serialize(serialization_type="avro")


def _event(measured: Measured, folder: Path) -> Any:
    library = importlib.import_module("dataclasses_avroschema")
    written = library.ModelGenerator().render(schema=json.loads(measured.text))
    (folder / "generated_by_peer.py").write_text(written, encoding="utf-8")
    made = importlib.import_module("generated_by_peer")
    header = made.Header(**measured.plain["header"])
    device = made.Device[measured.plain["device"]]
    event = made.PageView(**{**measured.plain, "header": header, "device": device})
    event.serialize(serialization_type="avro")
    return event
