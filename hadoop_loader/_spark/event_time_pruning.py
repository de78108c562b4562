"""Filters on the event time that read the partitions of their days alone, in any Spark session.

Spark derives no partition from another column, so users would have to name `datepartition` too.
EventTimePruning.java adds that condition. Rules:

- Spark's own compiler (Janino) compiles the rule when it is wanted: there is no jar to install.
- A table says in a property which column its partitions come from (`columns.PARTITION_TIME`). If
  they come from several, or another program made the table, it is read as before.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

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
    builder = _builder(spark._jvm)
    session.extensions().injectPreCBORule(builder)
    # This session has made its optimizer already, if it has run a query.
    add = getattr(session.experimental(), "extraOptimizations_$eq")
    add(rules.appended(builder.apply(session)))


def _builder(jvm: Any) -> Any:
    source = resources.files(__package__).joinpath(f"{_RULE}.java").read_text(encoding="utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    found = compiler.getClassLoader().loadClass(f"{_RULE}$Builder")
    no_arguments = jvm.java.util.ArrayList().toArray()
    return found.getDeclaredConstructors()[0].newInstance(no_arguments)
