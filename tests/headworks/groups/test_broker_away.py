"""Questions about groups while their broker stops, goes on, is killed, and starts again.

librdkafka ended a process that asked, by an assertion, when its requests timed out meanwhile.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process

pytestmark = pytest.mark.e2e

_SECONDS = 12.0
_ASKING = """
import sys, time
from headworks.errors import UnreachableError
from headworks.groups import _classic

groups, seconds = _classic.ClassicGroups(sys.argv[1]), float(sys.argv[2])
answered = away = 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    wait = (0.05, 0.15, 0.3, 1.0)[(answered + away) % 4]
    _classic._WAIT_SECONDS = _classic._TIMEOUT_SECONDS = wait
    try:
        groups.described(["billing", "shipping"])
        answered += 1
    except UnreachableError as error:
        assert sys.argv[1] in str(error)
        away += 1
print(answered, away)
"""


def test_a_process_that_asks_about_groups_outlives_its_broker(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    broker = ["broker", "start", "--listen", address, "--data-dir", str(tmp_path)]
    chance = random.Random(1)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(child_process.start(broker))
        command = [sys.executable, "-c", _ASKING, address, str(_SECONDS)]
        asking = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        while asking.poll() is None:
            if chance.random() < 0.6:
                service.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.05, 2))
                service.process.send_signal(signal.SIGCONT)
            else:
                service.kill()
                time.sleep(chance.uniform(0, 1))
                service = stack.enter_context(child_process.start(broker))
            time.sleep(chance.uniform(0.05, 1))
        output, errors = asking.communicate()
    assert asking.returncode == 0, errors
    answered, away = map(int, output.split())
    assert answered > 10
    assert away > 3
