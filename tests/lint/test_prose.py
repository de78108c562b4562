"""The prose check: what it reports, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint import prose

pytestmark = pytest.mark.unit


def rules(text: str) -> list[str]:
    return [fault.rule for fault in prose.faults_in(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Who asks is answered.",
        "Whoever holds the lock writes.",
        "The log is open. What was staged is undone.",
        "- Such a one is refused.",
    ],
)
def test_headless_openings_are_reported(text: str) -> None:
    assert rules(text) == ["headless opening: name the actor first"]


@pytest.mark.parametrize(
    "text",
    ["What does a consumer see?", "Whole batches are read.", "The broker reports what it skipped."],
)
def test_other_openings_are_not(text: str) -> None:
    assert rules(text) == []


def test_thirty_words_are_enough() -> None:
    assert rules("The " + "log " * 28 + "ends.") == []
    assert rules("The " + "log " * 29 + "ends.") == ["31 words: at most 30"]
    assert rules("The " + "log " * 20 + "ends. The " + "log " * 20 + "begins.") == []


def test_code_and_links_count_as_their_text() -> None:
    assert rules("Run `" + "word " * 40 + "` first.") == []
    assert rules("See [the broker](https://example.org/" + "a/" * 40 + ").") == []


@pytest.mark.parametrize(
    ("word", "ok"),
    [
        ("behaviour", False),
        ("behavior", True),
        ("Colours", False),
        ("serialised", False),
        ("serialized", True),
        ("decentralised", False),
        ("licence", False),
        ("analyse", False),
        ("analyses", True),
        ("labelled", False),
        ("canceled", True),
        ("otherwise", True),
        ("precise", True),
        ("catalogue", False),
        ("catalogs", True),
        ("`behaviour`", True),
    ],
)
def test_spelling_is_american(word: str, ok: bool) -> None:
    assert (rules(f"The {word} is documented.") == []) is ok


def test_headings_tables_code_and_drawings_are_no_prose() -> None:
    text = (
        "# What it is\n\n| Who | What |\n| --- | --- |\n\n"
        "```\nWho cares.\n```\n\n    What -> Who.\n"
    )
    assert rules(text) == []


def test_a_fault_has_its_line(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A module.\n\nIts rules.\n"""\n\n\ndef f() -> None:\n    """Who is it."""\n'
    )
    document = tmp_path / "page.md"
    document.write_text("# Page\n\nFine.\n\nWho reads is told.\n")
    assert [fault.line for fault in prose.faults_of(module)] == [8]
    assert [fault.line for fault in prose.faults_of(document)] == [5]


def test_comments_and_messages_are_read_and_patterns_are_not(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "# Who asks\n# is answered.\nA = 1  # what the broker knows\n"
        'raise ValueError(f"what {A} needs is missing", "what it is")\n'
        'B = re.compile(r"what .* is\\d so it is")\nC = "who what when where".split()\n'
        'D = "SELECT what is colour FROM table"  # noqa: S608\n'
    )
    assert [(fault.line, fault.sentence) for fault in prose.faults_of(module)] == [
        (1, "Who asks is answered."),
        (3, "what the broker knows"),
        (4, "what X needs is missing"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("run", "#!/bin/sh\nset -e\n\n# Who runs this waits.\ntrue\n", 4),
        ("values.yml", "a: who waits # what\n# A colour.\nb: 1\n", 2),
        ("native.c", "int a;\n\n/* Rules:\n *\n * Who waits is woken. */\n", 5),
        ("event.avsc", '{"fields": [{"doc": "Who built it."}]}', 1),
    ],
)
def test_comments_of_other_languages_are_read(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    (tmp_path / name).write_text(text)
    assert [fault.line for fault in prose.faults_of(tmp_path / name)] == [line]


def test_an_entry_is_a_file_or_a_folder() -> None:
    assert prose.is_below("broker/log/index.py", ["broker/"])
    assert prose.is_below("docs/broker.md", ["docs/broker.md"])
    assert not prose.is_below("broker/log/index.py", ["broker/log/index"])


def test_the_links_are_read_once() -> None:
    paths = list(prose.covered())
    assert "broker/log/index.py" in paths
    assert not [path for path in paths if path.startswith("headworks/_broker/")]
    assert "README.md" in paths


def test_the_check_ends_with_1_and_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Who asks is answered.\n")
    assert prose.main([str(page)]) == 1
    assert f"{page}:1: headless" in capsys.readouterr().out
    page.write_text("The broker answers.\n")
    assert prose.main([str(page)]) == 0
