"""Reads the small files of the commit log. Bytes that the loader did not write are CorruptError."""

from __future__ import annotations

import json
from typing import Any

from hadoop_loader._commit.commit_record import corrupt_error
from hadoop_loader._storage.filesystem import AnyPath


def read_text(file: AnyPath) -> str:
    """Return the text of a file of the log; CorruptError if it is none."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise corrupt_error(file) from None


def read_json(file: AnyPath) -> Any:
    """Return the content of a JSON file of the log; CorruptError if it is none."""
    try:
        return json.loads(read_text(file))
    except ValueError:
        raise corrupt_error(file) from None
