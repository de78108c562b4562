"""The typed producer: `send(event)` never waits for the broker, and every message is counted.

- Public: this module, `operations` (logs and metrics as events), `testing`, and `pytest_plugin`.
- `_producer`: what an application holds. `_transport`: its half per process. `_spill`: its queue on
  disk, in files of `_spill_file`.
- `_context`: headers that every event carries. `_interceptors`: hooks around `send`.
- `_generator`: `headworks gen`, from `.avsc` files to classes. `_untyped`: events without a class.
- `_hung_broker`: a broker that never answers, for users' tests.

Rules: imports only `headworks` and third parties, because it runs in a user's own process.
"""

from producer_sdk._context import event_headers
from producer_sdk._interceptors import Delivery, Interceptor
from producer_sdk._producer import DeliveryError, Producer, WhenFull, close_on_sigterm

__all__ = [
    "Delivery",
    "DeliveryError",
    "Interceptor",
    "Producer",
    "WhenFull",
    "close_on_sigterm",
    "event_headers",
]
