"""TOML files that cannot be read: each part that has one names the file, and the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headworks import _settings
from headworks._ci.governance import read_governance
from headworks._ci.settings import read_settings
from headworks._server.security.grants import read_grants
from headworks._toml_text import read_toml
from headworks.errors import UsageError

pytestmark = pytest.mark.unit

WRONG = {
    "can't decode": b'registry = "http://\xe9"\n',
    "utf-8": "registry = 1\n".encode("utf-16"),
    "is not TOML": b"registry =\n",
    "4300 digits": b"registry = " + b"9" * 5000,
    "nested too deeply": b"registry = " + b"[" * 5000,
}


def settings(path: Path) -> object:
    return _settings.resolve_optional("registry")


READERS: dict[str, Callable[[Path], object]] = {
    "headworks.toml": settings,
    "gate.toml": read_settings,
    "governance.toml": lambda path: read_governance(path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("words", WRONG)
def test_a_file_that_is_not_toml_is_named_with_the_reason(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(WRONG[words])
    monkeypatch.setenv("HEADWORKS_CONFIG", str(path))
    monkeypatch.delenv("HEADWORKS_REGISTRY", raising=False)
    with pytest.raises(UsageError) as refused:
        READERS[name](path)
    assert words in refused.value.message
    assert str(path) in refused.value.message


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        read_toml(tmp_path)
    assert read_toml(tmp_path / "none.toml") is None


@pytest.mark.parametrize("words", ["is not TOML", "4300 digits", "nested too deeply"])
def test_a_text_of_grants_that_is_not_toml_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_grants(WRONG[words].decode())
