"""Headworks: the code that its parts share, and the one import name of all of them.

- Public: `errors`, `schema`, `compatibility`, `registry_client`, `groups`, and `codec` (what
  generated classes import). Every name that starts with an underscore is private.
- Shared: `_kafka`, `_zookeeper`, `_server`, `_audit_counting`, `_decoding`, `_native`, and single
  modules. A user's process imports `_server` only to start servers for tests.
- Links to the parts at the top of the repository: `_broker`, `_registry`, `_cli`, and so on.

Rules:

- The shared code imports no part. Every part may import the shared code.
- Heavy packages (confluent_kafka, fastavro) are imported only by the modules that use them.
- One compatibility model, one wire format, and one schema model live here. The registry, the gate,
  the SDKs, and the loader all use them.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
