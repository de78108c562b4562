"""A service's logs and counters as events: operational data is event data.

- `_logs`: a `logging.Handler` that sends every record.
- `_metrics`: counters and gauges, sent once an interval.
- `_event`: their classes, generated from schemas/headworks/, for the topics headworks.logs and
  headworks.metrics.

Rules: both keep the contract of `send`. They never wait and never raise into the service, and
dropped events are counted. The log records of Headworks itself are not sent.
"""

from producer_sdk.operations._logs import EventLogHandler
from producer_sdk.operations._metrics import Metrics

__all__ = ["EventLogHandler", "Metrics"]
