"""Groups of options: a command takes a frozen dataclass, and the fields become its options.

    @dataclass(frozen=True, slots=True)
    class LogOptions:
        log_level: Annotated[str | None, typer.Option(help="log from this level on")] = None

    @app.command()
    @expand_groups
    def start(log: LogOptions) -> None: ...        # has the option --log-level

Rules: every field has a default and Typer's annotation. The help text of an option starts with a
small letter and has no full stop. The help text of a command is a sentence in the imperative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of `command` that is a dataclass by the fields of the dataclass."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if is_dataclass(hint):
            groups[name] = hint
            parameters += _parameters_of(hint)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def expanded(**options: Any) -> None:
        for name, group in groups.items():
            given = [field.name for field in fields(group) if field.name in options]
            options[name] = group(**{field: options.pop(field) for field in given})
        command(**options)

    # Typer reads both; without them it would read the signature of the wrapped command.
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in parameters}
    return expanded


def _parameters_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(group)
    ]
