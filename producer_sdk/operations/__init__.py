"""A service's own logs and counters as events: operational data is event data.

- `_logs`: a `logging.Handler` that sends every record;
- `_metrics`: counters and gauges, sent once an interval;
- `_event`: their classes, generated from schemas/headworks/ (topics headworks.logs and
  headworks.metrics).

Rules: the contract of `send`: never blocks, never raises into the service, what is dropped is
counted. What these send about themselves they do not send.
"""

from producer_sdk.operations._logs import EventLogHandler
from producer_sdk.operations._metrics import Metrics

__all__ = ["EventLogHandler", "Metrics"]
