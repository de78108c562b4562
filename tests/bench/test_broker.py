"""The broker's benchmark: its clients measure a real broker, its missing peers are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.broker import netdb, packages
from bench.broker.clients import Clients, collect, compile_c, spawn
from bench.broker.kafka_like import Headworks
from bench.broker.packages import Needed
from bench.frame import Bench
from headworks.errors import RefusedError, UnreachableError
from tests.tools import require

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    require("librdkafka-dev")
    folder = tmp_path_factory.mktemp("clients")
    compile_c(folder, "kafka", "rdkafka")
    return Clients(folder)


def test_the_papers_experiment_on_our_broker_alone(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netdb, "_COUNTS", dict.fromkeys(netdb._COUNTS, 20_000))
    monkeypatch.setattr(netdb, "let_others_rest", lambda: None)  # other tests do not rest
    frame = Bench("broker", tmp_path, quick=True)
    ours = Headworks(clients)
    ours.start(tmp_path / "ours")
    try:
        netdb.run(frame, [ours])
    finally:
        ours.stop()
    result = frame.as_json(title="", machine={})
    for what in ("produce", "consume"):
        for batch in ("batch 1", "batch 50", "1 MB batches"):
            found = result["measurements"][f"{what}, {batch}: headworks"]
            assert found["median"] > 0
            assert found["cpu"]["unit"] == "us/message"
    assert result["measurements"]["disk, batch 1: headworks"]["median"] == pytest.approx(70, abs=2)
    peers = [name for name in result["bars"] if "against" in name]
    assert len(peers) == 10
    assert all(result["bars"][name]["got"] is None for name in peers)
    assert not any(result["bars"][name]["ok"] for name in peers)


def test_a_client_that_fails_is_not_measured(clients: Clients) -> None:
    with pytest.raises(RefusedError, match=r"kafka failed: .*is not a number"):
        collect(spawn(clients.kafka("consume", "127.0.0.1:1", "topic", "one", "2")))


def test_what_cannot_be_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    absent = Needed(("a-server", "its-client"), ("/nonexistent/server",))
    with pytest.raises(UnreachableError, match="not installed: a-server, its-client") as caught:
        packages.provide([absent], lambda _: None)
    assert caught.value.fix == "apt-get install --no-install-recommends a-server its-client"


def test_what_is_there_is_not_installed() -> None:
    packages.provide([Needed(("python",), ("/",))], lambda _: pytest.fail("nothing to install"))
