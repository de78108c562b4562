"""The typed producer: `send(event)` never waits for the broker, and every message is counted.

- Public: this module, `operations` (logs and metrics as events), `prometheus`, `testing`, and
  `pytest_plugin`.
- `_producer`: the producer that an application holds. `_transport`: its per-process half.
- `_process_end`: exits and forks. `_totals`: events by outcome, and the log of lost ones.
- `_spill`: the queue on disk, in files of `_spill_file`. `_spill_resender` sends it.
- `_outgoing_message`: an encoded message. `_context`: the headers that every event carries.
- `_acknowledgement`: the wait for one event. `_interceptors`: hooks around `send`.
- `_untyped`: events without a class.
- `_generator`: `headworks gen`, from `.avsc` files to classes.
- `_hung_broker`: a broker that never answers, for users' tests.

Rules: imports only `headworks` and third parties, because it runs in a user's process.
"""

from producer_sdk._acknowledgement import DeliveryError
from producer_sdk._context import event_headers
from producer_sdk._interceptors import Delivery, Interceptor
from producer_sdk._process_end import close_on_sigterm
from producer_sdk._producer import Producer, WhenFull
from producer_sdk._totals import ProducerTotals

__all__ = [
    "Delivery",
    "DeliveryError",
    "Interceptor",
    "Producer",
    "ProducerTotals",
    "WhenFull",
    "close_on_sigterm",
    "event_headers",
]
