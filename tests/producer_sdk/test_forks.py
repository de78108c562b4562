"""A fork: a child never destroys, polls or holds what is not its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headworks._audit_counting.counters import CounterFile, leftover_files
from headworks._audit_counting.outcomes import ATTEMPTED, DELIVERED, OUTCOMES
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill import Spill, leftover_spills
from tests.headworks.audit_counting.both_forms import Counting

pytestmark = pytest.mark.e2e

CLIENTS = """
import gc, os, sys, threading
from headworks._kafka.clients import KafkaConsumer, KafkaProducer
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

class Cycle:
    pass

def rubbish(client):
    cycle = Cycle()
    cycle.itself, cycle.client = cycle, client

gc.disable()
for _ in range(4):
    rubbish(KafkaProducer(NOBODY))
rubbish(KafkaConsumer({**NOBODY, "group.id": "g"}))
held = KafkaProducer(NOBODY)
held.produce("topic", b"the parent's")
child = os.fork()
if child == 0:
    own = KafkaProducer(NOBODY)  # its threads are given the memory of those that are gone
    own.poll(0.05)
    threading.Thread(target=int).start()
    gc.collect()
    del held
    sys.exit(own.purge() or own.flush(60))  # through the end of the interpreter
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert code == 0, code
held.purge()
assert held.flush(60) == 0
"""


def test_a_forked_child_survives_the_clients_of_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-P", "-c", CLIENTS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


HOLDING = """
import os, signal, sys, time
from pathlib import Path
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.outcomes import DELIVERED
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill import Spill
folder = Path({folder!r})
counters, spill = CounterFile(folder), Spill(folder, limit=1 << 20)
counters.attempt("t", 0, 1).resolve(DELIVERED)
counters.attempt("t", 0, 1)
assert spill.append(OutgoingMessage("t", b"v", None, 1, None))
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
    time.sleep(300)
while True:
    time.sleep(1)
"""


def test_a_child_that_lives_on_does_not_hide_the_death_of_its_parent(
    tmp_path: Path, counting: Counting
) -> None:
    code = counting.begin + textwrap.dedent(HOLDING).format(folder=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert list(leftover_files(tmp_path)) == []
            assert list(leftover_spills(tmp_path)) == []
            parent.send_signal(signal.SIGKILL)
            parent.wait(60)
            (counters,) = leftover_files(tmp_path)
            (increment,) = counters.increments(owner_died=True)
            assert increment.counts == {
                OUTCOMES[ATTEMPTED]: 2,
                OUTCOMES[DELIVERED]: 1,
                "unresolved": 1,
            }
            counters.close()
            (spill,) = leftover_spills(tmp_path)
            assert [each.value for each in spill.read(10)] == [b"v"]
            spill.close()
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()


@pytest.mark.usefixtures("counting")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_the_parent_counts_after_a_fork_is_in_its_file(tmp_path: Path) -> None:
    counters, spill = CounterFile(tmp_path), Spill(tmp_path, limit=1 << 20)
    slot = counters.attempt("t", 0, 1)
    child = os.fork()
    if child == 0:
        taken = slot.attempt(1, 1) or spill.append(OutgoingMessage("t", b"", None, 1, None))
        os._exit(int(taken or not counters.closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    counters.attempt("t", 0, 1).resolve(DELIVERED)
    assert counters.open_messages() == 1
    assert spill.append(OutgoingMessage("t", b"", None, 1, None))
    spill.read(1)
    spill.acknowledge()
    spill.close()
    counters.close(remove=True)
    assert list(tmp_path.iterdir()) == []
