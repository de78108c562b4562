"""The English texts of a file, each with its line: what the prose check reads.

Rules:

- Of Python: docstrings, comments, and messages. A message is a string of one line and four words or
  more, such as an error, a line of a log, or a help text. SQL, patterns, and split lists are none.
- Of C: comments. Of YAML, shell, and make: lines that begin with `#`. Of a schema: each `doc`.
- Of any other file: its whole text.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HASHED = {".sh", ".toml", ".yaml", ".yml"}
_HASHED_NAMES = {"Makefile", "run"}
_MIN_MESSAGE_WORDS = 4
_DIRECTIVE = re.compile(r"(noqa|type:|pragma|fmt:|ruff:|mypy:|!)")
_HASHES = re.compile(r"(?:^[ \t]*#(?!!).*\n)+", re.MULTILINE)
_C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# A pattern, or a statement of SQL: no sentence begins or continues so.
_NO_MESSAGE = re.compile(
    r"\\[dswbn]|\.\*|\(\?|^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|ALTER)\b"
)

Text = tuple[int, str]


def texts_of(path: Path) -> Iterator[Text]:
    """Yield every text of a file, and the number of its first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        yield from _docstrings(tree)
        yield from _python_comments(text)
        yield from _messages(tree)
    elif path.suffix in {".c", ".h"}:
        for comment in _C_COMMENT.finditer(text):
            body = re.sub(r"\n[ \t]*\* ?", "\n", comment.group()[2:-2])
            yield text.count("\n", 0, comment.start()) + 1, body
    elif path.suffix == ".avsc":
        yield from ((1, doc) for doc in _docs(json.loads(text)))
    elif path.suffix in _HASHED or path.name in _HASHED_NAMES:
        for lines in _HASHES.finditer(text):
            body = re.sub(r"^[ \t]*# ?", "", lines.group(), flags=re.MULTILINE)
            yield text.count("\n", 0, lines.start()) + 1, body
    else:
        yield 1, text


def _docstrings(tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring


def _python_comments(text: str) -> Iterator[Text]:
    """Yield comments; those of consecutive lines are one."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        body = token.string.lstrip("#: ")
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(body):
            continue
        line = token.start[0]
        alone = not token.line[: token.start[1]].strip()
        if block and not (alone and line == last + 1):
            yield first, "\n".join(block)
            block = []
        if not block:
            first = line
        block.append(body)
        last = line if alone else 0
    if block:
        yield first, "\n".join(block)


def _messages(tree: ast.Module) -> Iterator[Text]:
    """Yield strings that read as sentences; a value within an f-string counts as one word."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)  # a docstring
        elif isinstance(node, ast.Attribute) and node.attr in {"split", "splitlines"}:
            skipped.add(node.value)  # a list of words
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "`value`" for v in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if (
            "\n" not in text
            and len(text.split()) >= _MIN_MESSAGE_WORDS
            and not _NO_MESSAGE.search(text)
        ):
            yield node.lineno, text


def _docs(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(doc := schema.get("doc"), str):
            yield doc
        for value in schema.values():
            yield from _docs(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _docs(value)
