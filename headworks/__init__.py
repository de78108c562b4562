"""The kernel: what every part of Headworks shares, and nothing that only one part needs.

Rules:

- Imports no other part of Headworks; everything else may import it.
- Imports heavy packages (confluent_kafka, fastavro) only inside the modules that use them.
- One compatibility model, one wire format, one schema model live here, for the
  registry, the gate, the SDKs and the loader alike.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
