"""Filters on the event time that read the partitions of their days alone, in any Spark session.

Spark derives no partition from another column, so users would have to name `datepartition` too.
EventTimePruning.java adds that condition.

Rule: a table says in a property which column its partitions come from (`columns.PARTITION_TIME`).
If they come from several, or another program made the table, it is read as before.
"""

from __future__ import annotations

from typing import Any, Final

from hadoop_loader._java_source import java_instance

_RULE: Final = "EventTimePruning"


def prune_by_event_time(spark: Any) -> None:
    """Add the rule to a classic SparkSession, and to the sessions that it will open.

    Doing so twice changes nothing.
    """
    session = spark._jsparkSession
    rules = session.experimental().extraOptimizations()
    names = [rules.apply(number).getClass().getName() for number in range(rules.size())]
    if _RULE in names:
        return
    builder = java_instance(spark._jvm, __package__, _RULE, f"{_RULE}$Builder")
    session.extensions().injectPreCBORule(builder)
    # This session has made its optimizer already, if it has run a query.
    add = getattr(session.experimental(), "extraOptimizations_$eq")
    add(rules.appended(builder.apply(session)))
