"""Passwords cost bounded work: few at a time, remembered when right and when wrong."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest

from headworks._server.security import Principal, Users
from headworks._server.security.http.basic_passwords import (
    MAX_WAITING_PASSWORDS,
    PasswordVerifier,
    TooManyPasswordsError,
)
from headworks._server.security.users import new_secret, write_users
from tests.registry.guarding import As, basic, start, write_files

pytestmark = pytest.mark.unit


class Counted(Users):
    """Users that say how often a password was derived, and never do it twice at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.derived = 0

    def verify(self, name: str, password: str) -> bool:
        self.derived += 1
        return super().verify(name, password)


@pytest.fixture
def users(tmp_path: Path) -> Counted:
    write_users(tmp_path / "users", {"ann": new_secret("right")})
    return Counted(tmp_path / "users")


def test_what_was_checked_is_not_checked_again(users: Counted) -> None:
    async def ask() -> None:
        passwords = PasswordVerifier(users)
        assert passwords.cached(b"1") is None
        for _ in range(3):
            assert await passwords.verify(b"2", "ann", "wrong") is None
            assert await passwords.verify(b"3", "bob", "any") is None
        assert users.derived == 2
        assert await passwords.verify(b"1", "ann", "right") == Principal("ann")
        assert passwords.cached(b"1") == Principal("ann")
        assert passwords.cached(b"2") is None
        passwords.close()

    asyncio.run(ask())


@pytest.mark.seconds
def test_a_changed_password_is_not_remembered(users: Counted, tmp_path: Path) -> None:
    async def ask() -> None:
        passwords = PasswordVerifier(users)
        assert await passwords.verify(b"1", "ann", "right") == Principal("ann")
        assert await passwords.verify(b"2", "ann", "later") is None
        write_users(tmp_path / "users", {"ann": new_secret("later")})
        await asyncio.sleep(1.1)
        assert passwords.cached(b"1") is None
        assert await passwords.verify(b"1", "ann", "right") is None
        assert await passwords.verify(b"2", "ann", "later") == Principal("ann")
        write_users(tmp_path / "users", {})
        await asyncio.sleep(1.1)
        assert passwords.cached(b"2") is None
        passwords.close()

    asyncio.run(ask())


def test_a_flood_is_turned_away_and_the_known_are_not(users: Counted) -> None:
    async def ask() -> None:
        passwords = PasswordVerifier(users)
        assert await passwords.verify(b"1", "ann", "right") == Principal("ann")
        flood = [passwords.verify(b"%d" % n, "ann", f"wrong {n}") for n in range(10_000, 10_500)]
        answers = await asyncio.gather(*flood, return_exceptions=True)
        assert [type(one) for one in answers].count(
            TooManyPasswordsError
        ) == 500 - MAX_WAITING_PASSWORDS
        assert answers.count(None) == MAX_WAITING_PASSWORDS
        assert users.derived == 1 + MAX_WAITING_PASSWORDS
        assert passwords.cached(b"1") == Principal("ann")
        passwords.close()

    asyncio.run(ask())


@pytest.mark.e2e
def test_guessing_does_not_keep_others_out(tmp_path: Path) -> None:
    with start(tmp_path, *write_files(tmp_path)) as running:
        root = As(running.url, basic("root"))
        assert root("GET", "/subjects").status == 200

        def timed(one: As) -> tuple[int, float]:
            began = time.monotonic()
            status = one("GET", "/subjects").status
            return status, time.monotonic() - began

        def guess(number: int) -> tuple[int, float]:
            return timed(As(running.url, basic("root", f"guess {number}")))

        known = []
        with ThreadPoolExecutor(16) as pool:
            guesses = [pool.submit(guess, number) for number in range(160)]
            while not all(one.done() for one in guesses):
                known.append(timed(root))
        assert {status for status, _ in known} == {200}
        guessed = [one.result() for one in guesses]
        assert {status for status, _ in guessed} <= {401, 429}
        # Whoever stood in the same queue would wait as long; a busy machine slows down both.
        assert 3 * median(took for _, took in known) < median(took for _, took in guessed)
