"""The store on PostgreSQL: the same answers."""

from __future__ import annotations

import pytest

from headworks._audit import queries
from headworks._audit.findings import findings
from headworks._audit.increments import CountedRange
from headworks._audit.metrics import take_snapshot
from headworks._audit.store import AuditStore
from headworks._audit.store.cuts import take_cut
from headworks._audit.store.retention import Retention, remove_expired
from headworks._audit.thresholds import Thresholds
from tests.audit.test_store import DAY, WINDOW, add, increment
from tests.registry.postgresql import running_cluster
from tests.tools import needs

pytestmark = pytest.mark.contract


@needs("postgresql")
def test_the_store_on_postgresql() -> None:
    now = 10 * DAY
    recent = (now - 2 * 3_600_000) // WINDOW
    with running_cluster() as cluster:
        store = AuditStore(cluster.new_store())
        counts = {"attempted": 10, "delivered": 8, "dropped:queue_full": 2}
        sent = increment("t", "producer", recent, counts, sent_at=now - 3_600_000)
        there = increment(
            "t",
            "hadoop",
            recent,
            {"loaded": 5},
            commit=1,
            ranges=(CountedRange(0, 0, 5),),
            sent_at=now,
        )
        assert add(store, sent, sent, there, at=now) == 2
        assert add(store, sent, at=now) == 0
        page = queries.health(store, now=now, containing="t")
        assert (page.sum.waiting, page.rows[0].sum.dropped) == (3, 2)
        assert take_cut(store, lambda topics: {"t": {0: (0, 5)}}, now + 10_000)
        assert queries.health(store, now=now).sum.lost == 3
        assert queries.topic_audit(store, "t", now=now).drops == {"queue_full": 2}
        assert queries.explain(store, "t", recent * WINDOW).loads[0].ranges == (
            CountedRange(0, 0, 5),
        )
        found = findings(store, now + 200_000, Thresholds())
        assert {"lost/hadoop/t", "dropped/producer/t"} < {finding.key for finding in found}
        assert take_snapshot(store, now, found).tiers
        until = queries.complete_until(store, "t", until=now)
        assert until.until == recent * WINDOW
        add(store, increment("t", "hadoop", recent, {"loaded": 3}, sent_at=now + 5), at=now)
        assert queries.time_to_complete(store, "hadoop").complete == 1
        assert remove_expired(store, now + 500 * DAY, Retention()) > 0
        assert queries.balances(store, "hadoop") == []
        store.close()
