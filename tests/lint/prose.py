"""Check the English of code and documents: `python -m tests.lint.prose [FILE ...]`.

Three rules, which a machine can decide:

- No sentence opens with a headless `who`, `whoever`, `what`, `whatever`, or `such a one`. Name the
  actor first. A question may open so.
- A sentence has at most 30 words. Code in backticks counts as one word.
- Words are spelled as in American English.

Without arguments it reads every document in `DOCUMENTS` and every product module: docstrings,
comments, and messages (`texts`). It leaves out the paths in `prose_not_yet.txt`, which may only
shrink: `--prune` removes the entries that have become clean. Headings, tables, code blocks, and
drawings are no prose.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lint.texts import texts_of

ROOT = Path(__file__).parents[2]
NOT_YET = Path(__file__).with_name("prose_not_yet.txt")
PRODUCT = (
    "audit",
    "bench",
    "broker",
    "ci",
    "cli",
    "console",
    "consumer_sdk",
    "hadoop_loader",
    "headworks",
    "mirror",
    "producer_sdk",
    "registry",
)
DOCUMENTS = (
    "*.md",
    "docs/**/*.md",
    ".github/**/*.md",
    ".github/**/*.yml",
    "*.yml",
    ".*.yaml",
    "Makefile",
    ".ci/run",
    "deploy/**/*.y*ml",
    "headworks/_native/*.c",
    "tests/bare/run",
)
MAX_WORDS = 30

_HEADLESS = re.compile(
    r"(Who|Whoever|What|Whatever|Such an? one|So it is with)\b(?![^.?!]*\?)", re.IGNORECASE
)
_BRITISH = re.compile(
    r"\b((?:behaviou?r(?<!behavior)|colour|honour|favour|neighbour|endeavour|rumour|labour)\w*"
    r"|(?:authori|catalogui|centrali|decentrali|finali|generali|initiali|materiali|memori|minimi"
    r"|maximi|normali|optimi|organi|reali|recogni|seriali|deseriali|speciali|summari|synchroni"
    r"|tokeni|utili|visuali)s(?:e|es|ed|ing|er|ers|ation|ations)"
    r"|analys(?:e|es|ed|ing)|catalogues?|centre[sd]?|defences?|licences?|offences?|grey|artefacts?"
    r"|cheques?|judgements?|programmes?|fulfil|learnt|spelt|whilst|amongst|ageing"
    r"|(?:label|model|signal|travel|level|tunnel)l(?:ed|ing|er|ers))\b",
    re.IGNORECASE,
)
_ANALYSES = re.compile(r"analyses\b", re.IGNORECASE)  # also the plural of "analysis"
_CODE = re.compile(r"``.+?``|`[^`]*`", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_URL = re.compile(r"<?https?://\S+")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[\w'\u2019/.-]*\w[\w'\u2019/.-]*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"(*])")
_BLOCK_END = re.compile(r"\n[ \t]*\n|\n[ \t]*(?=(?:[-*]|\d+\.)[ \t])")
_BULLET = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_NO_PROSE = ("|", "#", "<", ">>>", "+--", "```")


@dataclass(frozen=True, slots=True)
class Fault:
    """One sentence that breaks a rule."""

    line: int
    rule: str
    sentence: str


def faults_in(text: str, first_line: int = 1) -> Iterator[Fault]:
    """Yield the faults of a docstring or a document whose first line has this number."""
    text = _FENCE.sub(lambda fence: "\n" * fence.group().count("\n"), text)
    begin = 0
    for end, next_begin in [*((m.start(), m.end()) for m in _BLOCK_END.finditer(text)), (None, 0)]:
        block, line = text[begin:end], first_line + text.count("\n", 0, begin)
        begin = next_begin
        if block.lstrip().startswith(_NO_PROSE) or _is_literal(block):
            continue
        for sentence in _sentences(block):
            yield from _judged(line, sentence)


def _is_literal(block: str) -> bool:
    """Whether every line is indented by four or more: an example, a drawing, a table."""
    lines = [line for line in block.split("\n") if line.strip()]
    return all(line.startswith("    ") for line in lines)


def _sentences(block: str) -> list[str]:
    prose = _URL.sub("URL", _LINK.sub(r"\1", _CODE.sub("X", block)))
    prose = " ".join(_BULLET.sub("", prose).replace("**", "").split())
    return _SENTENCE_END.split(prose) if prose else []


def _judged(line: int, sentence: str) -> Iterator[Fault]:
    if _HEADLESS.match(sentence):
        yield Fault(line, "headless opening: name the actor first", sentence)
    if (count := len(_WORD.findall(sentence))) > MAX_WORDS:
        yield Fault(line, f"{count} words: at most {MAX_WORDS}", sentence)
    for word in _BRITISH.findall(sentence):
        if not _ANALYSES.fullmatch(word):
            yield Fault(line, f"British spelling: {word}", sentence)


def faults_of(path: Path) -> Iterator[Fault]:
    """Yield the faults of a file, in all of its texts."""
    for line, text in texts_of(path):
        yield from faults_in(text, line)


def covered() -> Iterator[str]:
    """Yield the path of every file that the check is about, relative to the repository."""
    for pattern in DOCUMENTS:
        yield from (path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(pattern)))
    for part in PRODUCT:
        for path in sorted((ROOT / part).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents if parent != ROOT):
                yield path.relative_to(ROOT).as_posix()


def not_yet() -> list[str]:
    """Return the files and folders that are not covered yet."""
    lines = NOT_YET.read_text(encoding="utf-8").splitlines() if NOT_YET.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def is_below(path: str, entries: list[str]) -> bool:
    """Whether an entry is this path or, ending in `/`, a folder above it."""
    return any(
        path == entry or (entry.endswith("/") and path.startswith(entry)) for entry in entries
    )


def prune() -> list[str]:
    """Replace each entry by those of its files that still have faults; return the result."""
    entries = not_yet()
    rest = [p for p in covered() if is_below(p, entries) and any(True for _ in faults_of(ROOT / p))]
    head = "# Files whose prose is not checked yet. This list may only shrink: see prose.py.\n"
    NOT_YET.write_text(head + "".join(f"{path}\n" for path in rest), encoding="utf-8")
    return rest


def main(arguments: list[str]) -> int:
    """Print every fault; return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="tests.lint.prose", description="check our English")
    parser.add_argument("files", nargs="*", help="check these files, listed or not")
    parser.add_argument("--prune", action="store_true", help="shorten prose_not_yet.txt")
    wanted = parser.parse_args(arguments)
    if wanted.prune:
        print(f"{len(prune())} files are not covered yet")
        return 0
    entries = not_yet()
    paths = wanted.files or [path for path in covered() if not is_below(path, entries)]
    found = 0
    for path in paths:
        for fault in faults_of(ROOT / path):
            print(f"{path}:{fault.line}: {fault.rule}: {fault.sentence[:90]}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
