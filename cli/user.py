"""`headworks user`: edit the file of users that broker, registry, and console authenticate by."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._settings import resolve
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._server.security.users import Secret

user_app = typer.Typer(no_args_is_help=True, help="Edit the users of the servers.")
File = Annotated[str | None, typer.Option("--users", help="file of users (setting users)")]
Name = Annotated[str, typer.Argument(help="the user")]


@user_app.command("set")
def set_password(
    name: Name,
    users: File = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="read the password from one line of stdin")
    ] = False,
) -> None:
    """Add a user, or change a password. Servers see it within a second."""
    from headworks._server.security.users import check_name, new_secret, write_users

    check_name(name)
    path = Path(resolve("users", users))
    known = _known(path)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    write_users(path, {**known, name: new_secret(password)})
    print_status(f"{'changed' if name in known else 'added'} {name} in {path}")


@user_app.command()
def remove(name: Name, users: File = None) -> None:
    """Remove a user."""
    from headworks._server.security.users import write_users

    path = Path(resolve("users", users))
    known = _known(path)
    if name not in known:
        raise UsageError(f"{path} has no user {name!r}", fix="see `headworks user list`")
    write_users(path, {other: secret for other, secret in known.items() if other != name})
    print_status(f"removed {name} from {path}")


@user_app.command("list")
def list_users(users: File = None, format: FormatOption = Format.TEXT) -> None:
    """List the users, without their passwords."""
    names = sorted(_known(Path(resolve("users", users))))
    if format is Format.JSON:
        print_json(names)
    else:
        print_table(("user",), [(name,) for name in names])


def _known(path: Path) -> dict[str, Secret]:
    from headworks._server.security.users import read_users

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the file of users {path}: {error}") from None
    return read_users(text)
