"""Wrong command lines: each is refused at once, names its fault, and says how to go on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headworks._cli.main import command_line
from headworks.errors import HeadworksError

pytestmark = pytest.mark.unit

# The line, and words of its refusal. The folder has: s/a.avsc, bad.avsc, and an empty file `file`.
TYPED = (
    ("shcema check", "Did you mean 'schema'?"),
    ("schema chek", "Did you mean 'check'?"),
    ("schema check --agianst x", "--against"),
    ("topic create", "Missing argument"),
    ("topic create x --partitions 0", "--partitions"),
    ("consume", "Missing argument"),
    ("consume t --max 0", "--max"),
    ("sql", "Missing argument"),
    ("mirror", "--from"),
    ("demo --limit 1", "--limit"),
    ("audit explain t", "Missing argument"),
    ("audit wait t", "--until"),
    ("broker start --broker-id -1", "--broker-id"),
    ("registry start --max-schema-depth 500", "--max-schema-depth"),
    ("load run --format xml", "--format"),
    ("group describe", "Missing argument"),
)
REFUSED = (
    ("schema check s", "nothing to check against"),
    ("schema check s --against registy", "'registy' is not a baseline"),
    ("schema check nowhere --against git:main", "nowhere does not exist"),
    ("schema lint nowhere", "nowhere does not exist"),
    ("schema register nowhere.avsc", "nowhere.avsc does not exist"),
    ("gen nowhere --out x", "nowhere does not exist"),
    ("gen s --out a-b", "cannot be the name of a Python package"),
    ("gen s --out file", "file cannot be written"),
    ("gen bad.avsc --out x", "bad.avsc: the schema is not JSON"),
    ("broker start --listen 9092", "--listen '9092' is not HOST:PORT"),
    ("broker start --listen 127.0.0.1:99999", "is not HOST:PORT"),
    ("broker adopt --data-dir nowhere", "is not the folder of a broker"),
    ("broker recreate t-0 --data-dir nowhere", "is not the folder of a broker"),
    ("registry start --listen here", "is not HOST:PORT"),
    ("console start --listen x", "is not HOST:PORT"),
    ("topic create x --config compact", "is no NAME=VALUE"),
    ("topic alter x", "there is nothing to change"),
    ("topic alter x --config a.b=1 --default a.b", "in --config and in --default"),
    ("group delete g", "nobody can answer here: delete group g and its offsets?"),
    ("group reset g", "either --to a place, or by a --shift"),
    ("group reset g --to tomorrow", "--to 'tomorrow'"),
    ("load run --every 10", "--every '10' is not a duration"),
    ("load run --partitions weekly", "'weekly'"),
    ("load run --quarantine-limit lots", "'lots' is not a limit"),
    ("load rewind t --to never", "'never' is no position"),
    ("load status --data-dir nowhere", "is not a warehouse"),
    ("load rewind t --to 0 --data-dir nowhere", "is not a warehouse"),
    ("load rebuild t --data-dir nowhere", "is not a warehouse"),
    ("load drop t --data-dir nowhere", "is not a warehouse"),
    ("load acknowledge t --data-dir nowhere", "is not a warehouse"),
    ("sql 'SELECT 1' --data-dir nowhere", "there is no metastore in nowhere"),
    ("sql 'SELECT 1' --hive nowhere", "'nowhere' is not an address"),
    ("audit status --since yesterday", "'yesterday' is not a time"),
    ("log dump nowhere", "neither a segment file nor a partition's folder"),
    ("log salvage nowhere", "not the folder of a partition"),
    ("up --broker x", "--broker 'x' is not HOST:PORT"),
    ("up --console 127.0.0.1:80800", "--console '127.0.0.1:80800' is not HOST:PORT"),
    ("up --metrics 9400", "--metrics '9400' is not an address"),
    ("topic list --bootstrap 127.0.0.1:99999", "'127.0.0.1:99999' is not HOST:PORT"),
    ("produce t --header x", "--header 'x' is no NAME=VALUE"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.avsc").write_text('{"type": "record", "name": "A", "fields": []}')
    (tmp_path / "bad.avsc").write_text("x")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP", "REGISTRY", "CONSOLE", "ZOOKEEPER", "DATA_DIR", "HIVE"):
        monkeypatch.delenv(f"HEADWORKS_{name}", raising=False)
    return tmp_path


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "said"), TYPED)
def test_a_line_that_cannot_be_parsed_names_the_place_and_the_help(
    folder: Path, line: str, said: str
) -> None:
    done = CliRunner().invoke(command_line(), shlex.split(line))
    assert done.exit_code == 2
    assert said in done.output
    assert "-h' for help" in done.output
    assert left(folder) == {"s", "s/a.avsc", "bad.avsc", "file"}


@pytest.mark.parametrize(("line", "said"), REFUSED)
def test_a_line_that_cannot_be_carried_out_names_its_fix(
    folder: Path, line: str, said: str
) -> None:
    done = CliRunner().invoke(command_line(), shlex.split(line))
    assert isinstance(done.exception, HeadworksError), done.output
    assert done.exception.exit_code in (1, 2)
    assert said in done.exception.message
    assert done.exception.fix
    assert left(folder) == {"s", "s/a.avsc", "bad.avsc", "file"}
