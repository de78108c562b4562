"""Node's clients: @platformatic/kafka, which names topics by their ids only, and kafkajs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.interop.programs import create, messages

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        shutil.which("npm") is None,
        reason="npm fetches the client, and is missing (apt-get install nodejs npm)",
    ),
]
_FOLDER = Path(__file__).parent
_DEADLINE_SECONDS = 120
_PLATFORMATIC = "@platformatic/kafka@1.35.0"
_KAFKAJS = "kafkajs@2.2.4"


def run(package: str, script: str, *arguments: str) -> str:
    """Run a script beside its library, which a cache folder keeps; return what it prints."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "headworks" / package.replace("/", "-").lstrip("@")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "package.json").is_file():  # npm writes it last
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    copied = shutil.copy(_FOLDER / script, folder)
    done = subprocess.run(
        ["node", copied, *arguments],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_topics_are_created_consumed_and_deleted_by_their_ids(broker: Service) -> None:
    printed = run(_PLATFORMATIC, "node_client.mjs", broker.address, "node-topic", "50")
    assert printed == "done\n"


def test_what_platformatic_commits_in_transactions_is_read(broker: Service) -> None:
    topic = "node-transactions"
    create(broker.address, topic, partitions=1)
    printed = run(_PLATFORMATIC, "node_transactions.mjs", broker.address, topic)
    assert printed == "done\n"
    assert [m.value() for m in messages(broker.address, topic)] == [b"committed", b"later"]
    written = [m.value() for m in messages(broker.address, topic, committed=False)]
    assert written == [b"committed", b"aborted", b"later"]


def test_kafkajs_commits_aborts_and_is_fenced(broker: Service) -> None:
    topic = "kafkajs-transactions"
    create(broker.address, topic, partitions=1)
    printed = run(_KAFKAJS, "kafkajs_client.mjs", broker.address, topic)
    assert printed.split() == ["committed", "later", "end"]


def test_kafkajs_writes_with_each_codec_and_resumes_in_a_group(broker: Service) -> None:
    printed = run(_KAFKAJS, "kafkajs_everyday.mjs", broker.address, "kafkajs-everyday")
    assert printed.split() == [
        f"{codec}-{number}" for codec in ("none", "gzip") for number in range(3)
    ]
