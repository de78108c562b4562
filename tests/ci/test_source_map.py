"""Lines and columns, counted as an editor counts them, whatever the file holds."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from headworks._ci.catalog import read_folder
from headworks._ci.gate import check
from headworks._ci.source_map import SourceMap
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.unit

MAIN = ["git:main"]


def test_positions_survive_comments_escapes_and_nesting() -> None:
    text = '{\n  /* c */ "a~/b": [1, {"x": "}"}],\n  "y": true\n}\n'
    source = SourceMap(text)
    assert source.region("/a~0~1b/1/x").line == 2
    assert (source.region("/y").line, source.region("/y").column) == (3, 3)
    assert source.region("/a~0~1b/0").column == text.splitlines()[1].index("1") + 1
    assert source.region("/y/not/there") == source.region("/y")
    assert source.region("").end_line == 4
    deep = "[" * 50_000 + "]" * 50_000
    assert SourceMap(deep).region("/0" * 3).column == 4


@pytest.mark.parametrize("text", ['{"\\q": 1, "a": [}', '"abc', "/* x", '{"a" 1}', "", "]]}"])
def test_positions_never_fail_on_invalid_json(text: str) -> None:
    assert SourceMap(text).region("/a/b").line == 1


@pytest.mark.parametrize("text", ['{"a": "\\' * 50_000, "/*," * 200_000, '"\\' * 200_000])
def test_positions_take_one_pass(text: str) -> None:
    before = time.process_time()
    assert SourceMap(text).region("/a").line == 1
    assert time.process_time() - before < 10


def pointers(value: Any, at: str = "") -> list[tuple[str, Any]]:
    found = [(at, value)]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += pointers(inner, f"{at}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            found += pointers(inner, f"{at}/{i}")
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_every_value_stands_where_it_is_said_to(seed: int, indent: Any) -> None:
    rng = random.Random(seed)

    def value(depth: int) -> Any:
        if depth and rng.random() < 0.6:
            if rng.random() < 0.5:
                return [value(depth - 1) for _ in range(rng.randint(0, 3))]
            keys = rng.sample(["a", "b/c", "d~e", 'q"', "日", "𝄞", "{", "//"], rng.randint(0, 4))
            return {key: value(depth - 1) for key in keys}
        return rng.choice([None, True, 1.5, "text", "}],", "𝄞 é", 'say "so"', "/* no */"])

    whole = value(4)
    text = json.dumps(whole, indent=indent, ensure_ascii=bool(seed % 2))
    source, lines = SourceMap(text), text.split("\n")
    for pointer, expected in pointers(whole):
        locate = source.value(pointer)
        assert locate is not None
        chosen = lines[locate.line - 1 : locate.end_line]
        chosen[-1] = chosen[-1][: locate.end_column - 1]
        chosen[0] = chosen[0][locate.column - 1 :]
        assert json.loads("\n".join(chosen)) == expected


@pytest.mark.e2e
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_marks(work: Work, end: str, mark: bytes) -> None:
    text = json.dumps(event({**ID, "doc": "𝄞 日本"}, {"name": "x", "type": "int"}), indent="\t")
    path = work.schemas / "trips.avsc"
    path.write_bytes(mark + text.replace("\n", end).encode())
    (found,) = check(Path("schemas"), MAIN).findings
    lines = text.split("\n")
    assert lines[found.region.line - 1][found.region.column - 1 :] == "{"
    assert '"x"' in lines[found.region.line + 1]
    work.commit()
    assert check(Path("schemas"), ["git:HEAD"]).subjects[0].changed is False


@pytest.mark.e2e
def test_findings_deep_inside_are_placed_at_their_own_lines(work: Work) -> None:
    def deep(kind: str) -> dict[str, Any]:
        inner = {"type": "record", "name": "In", "fields": [{"name": "n", "type": kind}]}
        return event(ID, {"name": "m", "type": ["null", {"type": "map", "values": {
            "type": "array", "items": inner}}]})  # fmt: skip

    work.git("checkout", "-q", "main")
    work.write("trips.avsc", deep("int"))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    path = work.write("trips.avsc", deep("string"))
    found = check(Path("schemas"), MAIN).findings[0]
    assert found.finding.path == "m{}[].n"
    line = path.read_text().split("\n")[found.region.line - 1]
    assert line[found.region.column - 1 : found.region.end_column - 1] == '"type": "string"'


@pytest.mark.e2e
def test_a_file_that_is_not_utf_8_is_a_finding_and_hides_nothing(work: Work) -> None:
    (work.schemas / "odd.avsc").write_bytes(b'{\n  "type": "fixed",\n  "name": "\xff\x1b[2J"}\n')
    work.write("trips.avsc", event({"name": "id", "type": "string"}))
    bad, other = check(Path("schemas"), MAIN).findings
    assert bad.finding.rule == "HW301"
    assert "not UTF-8: byte 0xff" in bad.finding.message
    assert (bad.region.line, bad.region.column) == (3, 12)
    assert bad.lines == ('  "name": "\ufffd\ufffd[2J"}',)
    assert other.finding.rule == "HW002"


@pytest.mark.e2e
def test_an_error_after_a_comment_is_placed_behind_it(work: Work) -> None:
    work.write("bad.avsc", '{\n  // what, is this\n  "type": "fixed",,\n}')
    (found,) = check(Path("schemas"), MAIN).findings
    assert (found.region.line, found.region.column) == (3, 19)


@pytest.mark.e2e
def test_deep_files_are_findings(work: Work) -> None:
    for depth in (450, 900, 10_000):
        work.write(f"deep{depth}.avsc", "[" * depth + "]" * depth)
        work.write(f"types{depth}.avsc", '{"type":"array","items":' * depth + '"int"' + "}" * depth)
    verdict = check(Path("schemas"), MAIN)
    assert [one.finding.rule for one in verdict.findings] == ["HW301"] * 6
    assert set(read_folder(Path("schemas"))) >= {one.file for one in verdict.findings}


def test_the_archive_of_a_warehouse_is_no_part_of_a_catalog(tmp_path: Path) -> None:
    archive = tmp_path / "headworks-data" / "warehouse" / "_headworks" / "schemas"
    archive.mkdir(parents=True)
    for path in (tmp_path / "order.avsc", archive / "7eaa.avsc"):
        path.write_text("{}")
    assert list(read_folder(tmp_path)) == [(tmp_path / "order.avsc").as_posix()]
    assert list(read_folder(archive)) == [(archive / "7eaa.avsc").as_posix()]
