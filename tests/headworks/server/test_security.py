"""Users and grants: what is permitted, what is refused, and the errors of a bad file."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient, ScramMechanism

from headworks._server.security import (
    ANONYMOUS,
    Access,
    Principal,
    ResourceType,
    Role,
    Users,
    parse_listen,
    refuse_exposure,
)
from headworks._server.security.grants import read_grants
from headworks._server.security.reloaded_file import ReloadedFile
from headworks._server.security.users import derive, new_secret, read_users, write_users
from headworks.errors import UsageError

pytestmark = pytest.mark.unit

ALICE = Principal("alice")


@pytest.fixture
def users(tmp_path: Path) -> Users:
    path = tmp_path / "users"
    write_users(path, {"alice": new_secret("wonder ländle"), "bob": new_secret("b")})
    return Users(path)


def test_a_password_is_checked_and_never_written(users: Users, tmp_path: Path) -> None:
    for _ in range(2):  # the second time from memory
        assert users.verify("alice", "wonder ländle")
        assert not users.verify("alice", "b")
        assert not users.verify("bob", "wonder ländle")
        assert not users.verify("carol", "b")
        assert not users.verify("alice", "")
    text = (tmp_path / "users").read_text()
    assert "wonder" not in text
    assert stat.S_IMODE((tmp_path / "users").stat().st_mode) == 0o600


def test_the_same_password_has_another_secret_for_each_user() -> None:
    assert new_secret("same").stored_key != new_secret("same").stored_key


def test_an_independent_client_logs_in_with_the_secret() -> None:
    secret = derive("pencil", b"salt" * 6, 4096)
    mechanism = ScramMechanism("SCRAM-SHA-256")
    server = mechanism.make_server(
        lambda _: (secret.salt, secret.stored_key, secret.server_key, secret.iterations)
    )
    client = ScramClient(["SCRAM-SHA-256"], "user", "pencil")
    server.set_client_first(client.get_client_first())
    client.set_server_first(server.get_server_first())
    server.set_client_final(client.get_client_final())
    client.set_server_final(server.get_server_final())  # raises if either side is not who it says


def test_a_changed_password_counts_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": new_secret("old")})
    now = 0.0
    users = Users(path)
    users._file = ReloadedFile(path, read_users, clock=lambda: now)
    assert users.verify("alice", "old")
    write_users(path, {"alice": new_secret("new")})
    now = 2.0
    assert users.verify("alice", "new")
    assert not users.verify("alice", "old")
    path.unlink()
    now = 4.0
    with pytest.raises(UsageError, match="cannot read"):
        users.verify("alice", "new")
    now = 4.1  # a broken file admits nobody until it is mended
    with pytest.raises(UsageError, match="cannot read"):
        users.verify("alice", "new")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("alice:secret", "line 2"),
        ("alice:SCRAM-SHA-256$4096:!!$!!:!!", "base64"),
        ("alice:SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "length"),
        ("alice:SCRAM-SHA-512$4096:AAAA$AAAA:AAAA", "line 2"),
    ],
)
def test_a_bad_line_is_named_by_number_and_not_shown(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read_users(f"# users\n{line}\n")
    assert "secret" not in str(caught.value)


GRANTS = """
[[grants]]
to = ["alice", "group:etl"]
roles = ["writer"]
prefix = "shop."

[[grants]]
to = ["*"]
roles = ["reader"]
on = ["subjects"]

[[grants]]
to = ["anonymous"]
roles = ["reader"]
prefix = "public."
on = ["topics"]

[[grants]]
to = ["root"]
roles = ["admin"]
"""


@pytest.fixture
def access(tmp_path: Path) -> Access:
    (tmp_path / "access.toml").write_text(GRANTS)
    return Access.load(tmp_path / "access.toml")


@pytest.mark.parametrize(
    ("who", "role", "kind", "name", "allowed"),
    [
        (ALICE, Role.WRITER, ResourceType.TOPICS, "shop.orders", True),
        (ALICE, Role.WRITER, ResourceType.TOPICS, "shop", False),
        (ALICE, Role.READER, ResourceType.TOPICS, "shop.orders", False),
        (ALICE, Role.ADMIN, ResourceType.TOPICS, "shop.orders", False),
        (ALICE, Role.READER, ResourceType.SUBJECTS, "other-value", True),
        (Principal("x", ("etl",)), Role.WRITER, ResourceType.GROUPS, "shop.g", True),
        (Principal("etl"), Role.WRITER, ResourceType.GROUPS, "shop.g", False),
        (Principal("group:etl"), Role.WRITER, ResourceType.GROUPS, "shop.g", False),
        (ANONYMOUS, Role.READER, ResourceType.TOPICS, "public.a", True),
        (ANONYMOUS, Role.READER, ResourceType.SUBJECTS, "public.a", False),
        (ALICE, Role.READER, ResourceType.TOPICS, "public.a", False),
        (Principal("root"), Role.READER, ResourceType.GROUPS, "any", True),
    ],
)
def test_grants(
    access: Access, who: Principal, role: Role, kind: ResourceType, name: str, allowed: bool
) -> None:
    assert access.allows(who, role, kind, name) is allowed


def test_a_name_is_that_one_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "grants.toml"
    file.write_text("[[grants]]\nto = ['alice']\nroles = ['reader']\nname = 'shop.orders'\n")
    access = Access.load(file)
    names = ("shop.orders", "shop.orders_archive", "shop.order", "")
    found = [access.allows(ALICE, Role.READER, ResourceType.TOPICS, name) for name in names]
    assert found == [True, False, False, False]
    assert not access.allows_everywhere(ALICE, Role.READER, ResourceType.TOPICS)
    assert access.allows_somewhere(ALICE, Role.READER, ResourceType.TOPICS)


def test_everywhere_and_somewhere(access: Access) -> None:
    assert access.allows_everywhere(Principal("root"), Role.ADMIN, ResourceType.TOPICS)
    assert not access.allows_everywhere(ALICE, Role.WRITER, ResourceType.TOPICS)
    assert access.allows_somewhere(ALICE, Role.WRITER, ResourceType.TOPICS)
    assert not access.allows_somewhere(ANONYMOUS, Role.WRITER, ResourceType.TOPICS)


@given(st.text(), st.sampled_from(Role), st.sampled_from(ResourceType))
def test_without_a_file_users_may_do_everything_and_others_nothing(
    name: str, role: Role, kind: ResourceType
) -> None:
    open_to_users = Access.load(None)
    assert open_to_users.allows(ALICE, role, kind, name)
    assert not open_to_users.allows(ANONYMOUS, role, kind, name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grants = 1", "list"),
        ("[[grant]]", "grant"),
        ("[[grants]]\nto = []\nroles = ['reader']", "to"),
        ("[[grants]]\nto = ['a']\nroles = ['boss']", "boss"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\ntopic = 'x'", "unknown key topic"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nprefix = 1", "prefix"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nname = ''", "name must be"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nname = 'x'\nprefix = 'x'", "and a name"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\non = ['tables']", "tables"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nname = ':.:x'", "write name = 'x'"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nname = ':.x'", "write name = ':.x:'"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nprefix = ':.:x.'", "write prefix = 'x.'"),
        ("[[grants]]\nto = ['a']\nroles = ['reader']\nprefix = ':.:'", "leave out the prefix"),
        ("x = ", "TOML"),
    ],
)
def test_a_bad_grant_is_refused_with_its_number_and_rule(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_grants(text)


def test_the_spelling_of_subjects_binds_grants_on_subjects_only() -> None:
    head = "[[grants]]\nto = ['a']\nroles = ['reader']\n"
    for rest in ("name = ':.x:s'", "prefix = ':.x'", "name = ':.:g'\non = ['groups']"):
        assert len(read_grants(head + rest)) == 1


def test_an_address_beyond_this_machine_needs_a_reason() -> None:
    assert parse_listen("[::1]:9092") == ("::1", 9092)
    refuse_exposure("127.0.0.1", "broker", authenticates=False, insecure=False)
    refuse_exposure("10.0.0.5", "broker", authenticates=True, insecure=False)
    refuse_exposure("10.0.0.5", "broker", authenticates=False, insecure=True)
    with pytest.raises(UsageError, match="would not authenticate clients"):
        refuse_exposure("10.0.0.5", "broker", authenticates=False, insecure=False)
    for wrong in ("nowhere", ":9092", "example.com:1", "127.0.0.1:99999"):
        with pytest.raises(UsageError):
            parse_listen(wrong)


def test_a_file_that_is_not_there_does_not_start_anything(tmp_path: Path) -> None:
    for load in (Users, Access.load):
        with pytest.raises(UsageError, match="cannot read"):
            load(tmp_path / "none")


def test_a_file_that_is_not_understood_is_named_and_says_how_to_mend_it(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("nonsense", encoding="utf-8")
    for load in (Users, Access.load):
        with pytest.raises(UsageError, match=re.escape(str(path))):
            load(path)
    path.write_text("[[grants]]\nto = ['a']\nroles = ['boss']", encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        Access.load(path)
    assert refused.value.fix == "use reader, writer, admin"
