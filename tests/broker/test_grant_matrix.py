"""Every API of the broker for every role on one name, under a prefix, on all names, on none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from headworks._broker.handlers import REQUIRED_ROLES
from headworks._kafka.protocol.apis import ApiKey
from headworks._server import child_process
from headworks._server.security import Role
from headworks._server.security.users import derive, write_users
from tests.broker.build import batch
from tests.broker.conftest import start_broker
from tests.broker.test_security_access import ASKED, CLUSTER, GROUP, TOPIC, TRANSACTION, codes
from tests.broker.wire import Wire, fetch, fetched, produce, produced
from tests.grantees import GRANTEES, Grantee, grants_file

pytestmark = pytest.mark.e2e

OWN, PREFIX = "shop.orders", "shop."
# Of topics and of groups: the one name; a longer one; another under the prefix; somebody else's.
NAMES = [OWN, f"{OWN}_archive", "shop.carts", "hr.salaries"]
JOIN, DELETE_TOPICS, DESCRIBE_LOG_DIRS, INIT_PRODUCER_ID = 11, 20, 35, 22
_CONFIGS = (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
ROOT = "root"


def log_in(running: child_process.Service, user: str) -> Wire:
    wire = Wire(running.address)
    assert wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    assert (
        wire.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{user}".encode()).error_code
        == 0
    )
    return wire


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    folder = tmp_path_factory.mktemp("guarded")
    users = [one.user for one in GRANTEES] + [ROOT]
    write_users(folder / "users", {user: derive(user, b"salt" * 6, 4096) for user in users})
    grants = grants_file(name=OWN, prefix=PREFIX, on='["topics", "groups"]')
    root = f'[[grants]]\nto = ["{ROOT}"]\nroles = ["admin"]\n'
    (folder / "access.toml").write_text(grants + root, encoding="utf-8")
    files = ["--users", str(folder / "users"), "--access", str(folder / "access.toml")]
    with start_broker(folder / "data", *files, "--default-partitions", "1") as running:
        with log_in(running, ROOT) as wire:
            for name in NAMES:
                assert codes(wire.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[19](name, name)[1])) == [0]
                assert codes(wire.ask(ApiKey.OFFSET_COMMIT, 7, **ASKED[8](name, name)[1])) == [0]
        yield running


def granted(one: Grantee, roles: tuple[Role, ...], name: str) -> bool:
    """Whether the user has one of the roles, if any is needed, for the name; "" for all names."""
    return not roles or (one.has(roles) and one.covers(name, name=OWN, prefix=PREFIX))


def may(one: Grantee, api: int, name: str) -> bool:
    rule = REQUIRED_ROLES[api]
    if api in (
        DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.WRITE_TXN_MARKERS,
    ):  # names nothing: it is about the broker as a whole
        return granted(one, rule.all_topics, "")
    if api in (INIT_PRODUCER_ID, ApiKey.END_TXN):  # names nothing: one topic to write to is enough
        return one.has(rule.any_topic)
    if api in _CONFIGS:  # asked about topics here
        return granted(one, rule.topic, name)
    return granted(one, rule.topic, name) and granted(one, rule.group, name)


def refused(wire: Wire, api: int, name: str) -> bool:
    if api == ApiKey.PRODUCE:
        wire.send(ApiKey.PRODUCE, 7, produce(name, 0, bytes(batch()), acks=-1))
        found = {produced(wire.receive()[1], name)[0]}
    elif api == ApiKey.FETCH:
        wire.send(ApiKey.FETCH, 11, fetch(name, 0, 0, wait_ms=0))
        found = {fetched(wire.receive()[1])[0]}
    else:
        version, fields = ASKED[api](name, name)
        if api == JOIN:  # a session of no length is refused as such: nobody waits for a rebalance
            fields |= {"session_timeout": timedelta()}
        found = set(codes(wire.ask(api, version, **fields)))
    return bool(found & {TOPIC, GROUP, CLUSTER, TRANSACTION})


@pytest.mark.parametrize("one", GRANTEES, ids=lambda one: one.user)
def test_an_api_is_open_to_the_role_on_that_name_alone(
    guarded: child_process.Service, one: Grantee
) -> None:
    wrong = []
    with log_in(guarded, one.user) as wire:
        # Deleting comes last: every other API finds the topics that it is asked about.
        for api in sorted(
            {ApiKey.PRODUCE, ApiKey.FETCH, *ASKED}, key=lambda api: (api == DELETE_TOPICS, api)
        ):
            for name in NAMES:
                expected = may(one, api, name)
                if refused(wire, api, name) == expected:
                    wrong.append((api, name, "refused" if expected else "let in"))
    assert not wrong


@pytest.mark.parametrize("one", GRANTEES, ids=lambda one: one.user)
def test_listings_show_what_the_grant_is_about(
    guarded: child_process.Service, one: Grantee
) -> None:
    with log_in(guarded, ROOT) as wire:  # what an admin of the test above has deleted
        for name in NAMES:
            wire.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[19](name, name)[1])
            assert codes(wire.ask(ApiKey.OFFSET_COMMIT, 7, **ASKED[8](name, name)[1])) == [0]
    with log_in(guarded, one.user) as wire:
        for _ in range(2):  # the second time from memory
            topics = wire.ask(
                ApiKey.METADATA, 5, topics=None, allow_auto_topic_creation=True
            ).topics
            seen = [n for n in NAMES if granted(one, (Role.READER, Role.WRITER), n)]
            assert sorted(topic.name for topic in topics) == sorted(seen)
            groups = wire.ask(ApiKey.LIST_GROUPS, 2).groups
            read = [n for n in NAMES if granted(one, (Role.READER,), n)]
            assert sorted(group.group_id for group in groups) == sorted(read)
