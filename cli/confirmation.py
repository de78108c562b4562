"""The question before a command does what cannot be undone.

Rule: a command that can get no answer, as in a script, changes nothing and names the option that
answers beforehand.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headworks.errors import UsageError

YesOption = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]


def confirm(question: str) -> None:
    """Ask on stderr, and end the command unless the answer is yes.

    Raises UsageError if stdin is at its end.
    """
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, EOFError):
            raise UsageError(
                f"nobody can answer here: {question}", fix="add --yes to do it without an answer"
            ) from None
        raise
