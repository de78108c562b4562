"""Settings: a flag beats the environment beats the file beats the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from headworks._settings import SETTINGS, lookup, resolve
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def write(folder: Path, text: str) -> None:
    (folder / "headworks.toml").write_text(text, encoding="utf-8")


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    env = {"HEADWORKS_BOOTSTRAP": "env:1"}
    default = lookup("bootstrap", env={}, folder=tmp_path)
    assert (default.value, default.source) == ("127.0.0.1:9092", "default")
    write(tmp_path, 'bootstrap = "file:1"')
    from_file = lookup("bootstrap", env={}, folder=tmp_path)
    assert from_file.value == "file:1"
    assert from_file.source.endswith("headworks.toml")
    from_env = lookup("bootstrap", env=env, folder=tmp_path)
    assert (from_env.value, from_env.source) == ("env:1", "$HEADWORKS_BOOTSTRAP")
    from_flag = lookup("bootstrap", "flag:1", env=env, folder=tmp_path)
    assert (from_flag.value, from_flag.source) == ("flag:1", "flag")


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    env = {"HEADWORKS_BOOTSTRAP": "", "HEADWORKS_ZOOKEEPER": "", "HEADWORKS_CONFIG": ""}
    default = lookup("bootstrap", env=env, folder=tmp_path)
    assert (default.value, default.source) == ("127.0.0.1:9092", "default")
    assert lookup("zookeeper", env=env, folder=tmp_path).value is None
    write(tmp_path, 'bootstrap = "file:1"')
    assert lookup("bootstrap", env=env, folder=tmp_path).value == "file:1"
    assert lookup("zookeeper", "", env=env, folder=tmp_path).value == ""


def test_the_warehouse_follows_the_data_folder(tmp_path: Path) -> None:
    found = lookup("warehouse", env={"HEADWORKS_DATA_DIR": "/d"}, folder=tmp_path)
    assert found.value == "/d/warehouse"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('bootstrp = "x"', "'bootstrp', which is not a setting"),
        ("bootstrap = 1", "must be a string"),
        ("bootstrap = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError, match=says):
        lookup("bootstrap", env={}, folder=tmp_path)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    env = {"HEADWORKS_CONFIG": str(tmp_path / "absent.toml")}
    with pytest.raises(UsageError, match="does not exist"):
        lookup("bootstrap", env=env)


def test_tables_belong_to_the_parts(tmp_path: Path) -> None:
    write(tmp_path, "[gate]\nanything = 1\n")
    assert lookup("bootstrap", env={}, folder=tmp_path).source == "default"


def test_a_setting_without_a_value_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWORKS_HIVE", raising=False)
    with pytest.raises(UsageError, match="--hive, set \\$HEADWORKS_HIVE"):
        resolve("hive")


def test_every_setting_is_documented(root: Path) -> None:
    documented = (root / "docs" / "settings.md").read_text(encoding="utf-8")
    assert not [name for name in SETTINGS if f"`{name}`" not in documented]
