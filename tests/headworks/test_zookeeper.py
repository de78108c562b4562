"""ZooKeeper: paths, nodes, and sessions with a real server."""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._zookeeper import (
    BrokerNode,
    BrokerWatch,
    MemberNode,
    OffsetNode,
    SessionState,
    TopicNode,
    live_brokers,
    open_session,
    parse_address,
    paths,
)
from headworks._zookeeper.session import kazoo
from headworks.errors import CorruptError, UnreachableError, UsageError
from tests.consumer_sdk.zookeeper_group.cluster import eventually
from tests.ensemble import Ensemble, Server, ensemble

pytestmark = pytest.mark.unit

WAIT = 60.0
texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(texts)
def test_any_name_is_one_component(name: str) -> None:
    component = paths.component(name)
    assert component
    assert component not in (".", "..")
    assert "/" not in component
    assert component.isascii()
    assert component.isprintable()
    assert paths.name_of(component) == name


@given(st.lists(texts, min_size=2, max_size=2, unique=True))
def test_two_names_are_two_components(names: list[str]) -> None:
    assert paths.component(names[0]) != paths.component(names[1])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.broker(2), "/brokers/ids/2"),
        (paths.topic("clicks"), "/brokers/topics/clicks"),
        (paths.served("clicks", 2), "/brokers/topics/clicks/2"),
        (paths.member("g", "host:uuid"), "/consumers/g/ids/host:uuid"),
        (paths.owner("g", "clicks", 2, 7), "/consumers/g/owners/clicks/2-7"),
        (paths.offset("g", "clicks", 2, 7), "/consumers/g/offsets/clicks/2-7"),
    ],
)
def test_the_directories_are_the_design_s(path: str, expected: str) -> None:
    assert path == expected


@given(
    st.lists(st.integers(0, 9), max_size=5),
    st.dictionaries(texts, texts, max_size=3),
    st.booleans(),
)
def test_topics_read_back(assignment: list[int], configs: dict[str, str], deleting: bool) -> None:
    left = tuple(assignment) if deleting else ()
    node = TopicNode(tuple(assignment), configs, deleting, left)
    assert TopicNode.load(node.dump(), "/x") == node


@given(st.integers(0, 1 << 62), st.integers(-1, 9), texts)
def test_positions_read_back(offset: int, epoch: int, metadata: str) -> None:
    node = OffsetNode(offset, epoch, metadata)
    assert OffsetNode.load(node.dump(), "/x") == node


@pytest.mark.parametrize(
    "node",
    [
        MemberNode({"clicks": 2, "white_list": 1}),
        MemberNode({}, "cl.*", False, 3),
        MemberNode({}, "x|y", True, 1),
    ],
)
def test_members_read_back(node: MemberNode) -> None:
    assert MemberNode.load(node.dump(), "/x") == node


def test_a_plain_position_is_a_plain_number() -> None:
    assert OffsetNode(42).dump() == b"42"


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"null", b'{"partitions": {"1": 1}}'])
def test_what_cannot_be_read_is_named(value: bytes) -> None:
    with pytest.raises(CorruptError, match="/brokers/topics/t"):
        TopicNode.load(value, "/brokers/topics/t")


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk1:2181", ("zk1:2181",), ""),
        ("zk1", ("zk1:2181",), ""),
        ("zk1:1,[::1]:2/a/b/", ("zk1:1", "[::1]:2"), "/a/b"),
        ("zk1/", ("zk1:2181",), ""),
    ],
)
def test_addresses(text: str, hosts: tuple[str, ...], chroot: str) -> None:
    found = parse_address(text)
    assert (found.hosts, found.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "zk1:0",
        "zk1:99999",
        "zk1:x",
        "zk1:1/a//b",
        "zk1:1/a/..",
        "zk1:1/a,zk2:1/a",
        "http://x",
    ],
)
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ZooKeeper address"):
        parse_address(text)


def test_without_kazoo_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(UsageError, match=r"headworks\[zookeeper\]"):
        open_session("127.0.0.1:1")


@pytest.mark.contract
def test_an_unreachable_zookeeper_is_reported() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=address):
            open_session(address, wait=0.5)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ensemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.mark.contract
def test_a_chroot_is_created_only_on_request(zookeeper: Ensemble) -> None:
    with pytest.raises(UsageError, match="/nobody"):
        open_session(f"{zookeeper.address}/nobody")
    with open_session(f"{zookeeper.address}/somebody", create_chroot=True) as first:
        first.client.create("/mark")
    with open_session(f"{zookeeper.address}/somebody") as second:
        assert second.client.exists("/mark")


@pytest.mark.contract
@pytest.mark.parametrize("accepts", [True, False])
def test_a_silent_server_leaves_time_for_another(
    zookeeper: Ensemble, monkeypatch: pytest.MonkeyPatch, accepts: bool
) -> None:
    """It accepts the connection and says nothing, or its host says nothing at all."""
    monkeypatch.setattr("kazoo.protocol.connection.random.shuffle", lambda _: None)
    with socket.socket() as silent, ExitStack() as others:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        for _ in range(0 if accepts else 8):  # more than wait for a server that never accepts
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(silent.getsockname())
        first = f"127.0.0.1:{silent.getsockname()[1]}"
        with open_session(f"{first},{zookeeper.address}", timeout=30, wait=25) as session:
            assert session.client.get("/")


@pytest.mark.contract
def test_the_agreed_timeout_is_known(zookeeper: Ensemble) -> None:
    with open_session(zookeeper.address, timeout=600) as session:
        assert session.timeout == 60  # the most that it grants


@pytest.mark.contract
def test_a_lost_answer_ends_the_connection_and_not_the_session(zookeeper: Ensemble) -> None:
    lost = kazoo("exceptions").ConnectionLoss
    with open_session(zookeeper.address, timeout=60) as session:
        number = session.id
        nobody = session.client.handler.async_result()
        session.client._pending.append((None, nobody, 1 << 30))  # it waits for what will not come
        with pytest.raises(lost):
            session.client.get("/")
        with pytest.raises(lost):
            nobody.get(WAIT)
        eventually("the connection", lambda: session.state is SessionState.CONNECTED)
        assert session.client.get("/")
        assert session.id == number


@pytest.mark.contract
def test_brokers_are_followed_through_the_end_of_a_session(zookeeper: Ensemble) -> None:
    here = f"{zookeeper.address}/followed"
    told: queue.Queue[Mapping[int, BrokerNode]] = queue.Queue()
    lost: queue.Queue[SessionState] = queue.Queue()
    with open_session(here, timeout=12, create_chroot=True) as session:
        watch = BrokerWatch(session, told.put)
        assert told.get(timeout=WAIT) == {}
        node = BrokerNode("127.0.0.1", 9092, "first")
        path = paths.broker(3)
        session.client.create(path, node.dump(), ephemeral=True, makepath=True)
        assert told.get(timeout=WAIT) == {3: node}
        session.on_state(lost.put)
        zookeeper.servers[0].pause()
        assert lost.get(timeout=WAIT) is SessionState.SUSPENDED
        zookeeper.servers[0].resume()
        with open_session(here) as other:
            while lost.get(timeout=WAIT) is not SessionState.CONNECTED:
                pass
            if 3 in live_brokers(other):  # the pause may have been shorter than the session
                other.client.delete(path)
            assert told.get(timeout=WAIT) == {}
            other.client.create(paths.broker(4), b"nonsense", ephemeral=True)
            other.client.create(path, node.dump(), ephemeral=True)
            assert told.get(timeout=WAIT) == {3: node}
        watch.stop()


@pytest.mark.contract
def test_three_servers_elect_another_leader(tmp_path: Path) -> None:
    with ensemble(tmp_path, 3) as three, open_session(three.address) as session:
        session.client.create("/kept", b"1")
        three.leader().kill()
        assert session.client.retry(session.client.get, "/kept")[0] == b"1"


_PARENT = """
import pathlib, sys, time
from headworks._cli.stack.embedded_zookeeper import EmbeddedZooKeeper
server = EmbeddedZooKeeper(pathlib.Path(sys.argv[1]))
server.start()
print(server.port, flush=True)
time.sleep(600)
"""


@pytest.mark.contract
def test_an_embedded_server_ends_with_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = Server(tmp_path, int(parent.stdout.readline()))
        eventually("an answer", lambda: server.mode() == "standalone")
        parent.kill()
    eventually("the end of the server", lambda: not is_listening(server.port))


def is_listening(port: int) -> bool:
    """Whether the port is somebody's, who may be too busy to answer."""
    try:
        socket.create_connection(("127.0.0.1", port), WAIT).close()
    except ConnectionRefusedError:
        return False
    return True
