"""The console follows `governance.toml`, and messages cannot turn the direction of a page."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headworks._console.app.formatting import compact, pretty
from headworks._console.sources.governance import GovernanceReader
from headworks.errors import UsageError

pytestmark = pytest.mark.unit

GOOD = """
[subjects."flights-value"]
consumers = ["finance dashboards"]
"""


def test_a_catalog_that_appears_and_changes_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "schemas"
    read = GovernanceReader(folder)
    assert not read().subjects
    folder.mkdir()
    file = folder / "governance.toml"
    file.write_text(GOOD, encoding="utf-8")
    known = read()
    assert known.subjects["flights-value"].consumers == ("finance dashboards",)
    assert read() is known
    with caplog.at_level(logging.WARNING):
        file.write_text("no toml at all", encoding="utf-8")
        assert read() is known
    assert "the last good one stays in use" in caplog.text
    file.unlink()
    assert not read().subjects
    file.write_text("no toml", encoding="utf-8")
    with pytest.raises(UsageError):
        GovernanceReader(folder)


def test_a_folder_that_is_none_any_more_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "governance.toml").write_text(GOOD, encoding="utf-8")
    read = GovernanceReader(folder)
    known = read()
    folder.rename(tmp_path / "elsewhere")
    folder.touch()
    with caplog.at_level(logging.WARNING):
        assert read() is known
    assert f"cannot read {folder / 'governance.toml'}: Not a directory" in caplog.text
    with pytest.raises(UsageError, match="Not a directory"):
        GovernanceReader(folder)


def test_characters_that_turn_text_round_are_shown_as_escapes() -> None:
    event = {"name": "\u202e,live\u2066", "plain": "שלום"}
    for text in (compact(event), pretty(event)):
        assert "\u202e" not in text
        assert "\\u202e,live\\u2066" in text
        assert "שלום" in text
