"""@platformatic/kafka of Node, a client that names topics by their ids and by nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headworks._server.child_process import Service

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        shutil.which("npm") is None,
        reason="npm fetches the client, and is missing (apt-get install nodejs npm)",
    ),
]
_PACKAGE = "@platformatic/kafka@1.35.0"
_SCRIPT = Path(__file__).parent / "node_client.mjs"
_DEADLINE_SECONDS = 120


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside its library, which a cache folder keeps."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "headworks" / _PACKAGE.replace("/", "-").lstrip("@")
    if not (folder / "node_modules").is_dir():
        fetched = tmp_path_factory.mktemp("npm")
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(fetched), _PACKAGE]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(fetched, folder, dirs_exist_ok=True)
    return Path(shutil.copy(_SCRIPT, folder))


def test_topics_are_created_consumed_and_deleted_by_their_ids(
    script: Path, broker: Service
) -> None:
    done = subprocess.run(
        ["node", str(script), broker.address, "node-topic", "50"],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
