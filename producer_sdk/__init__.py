"""The typed producer: `send(event)` never waits for the broker, and every message is counted.

- `producer`: Producer, what an application holds.
- `running`: what runs of it in one process; `spill`: its queue on disk.
- `context`: headers that events carry by themselves; `interceptors`: hooks on the way of an event.
- `testing`, `hung_broker`, `pytest_plugin`: for users' own tests.
- `generator`: `headworks gen`, `.avsc` files to classes.

Rules: imports only the kernel and third parties, because it runs in a user's own process.
"""

from producer_sdk.context import event_headers
from producer_sdk.interceptors import Delivery, Interceptor
from producer_sdk.producer import DeliveryError, Producer, WhenFull, close_on_sigterm

__all__ = [
    "Delivery",
    "DeliveryError",
    "Interceptor",
    "Producer",
    "WhenFull",
    "close_on_sigterm",
    "event_headers",
]
