"""The typed producer: `send(event)` never waits for the broker, and every message is counted.

- `producer`: Producer, what an application holds.
- `generator`: `headworks gen`, `.avsc` files to classes.

Rules: imports only the kernel and third parties, because it runs in a user's own process.
"""

from producer_sdk.producer import DeliveryError, Producer, WhenFull, close_on_sigterm

__all__ = ["DeliveryError", "Producer", "WhenFull", "close_on_sigterm"]
