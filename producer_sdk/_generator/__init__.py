"""`.avsc` files to Python modules: typed classes that encode themselves.

- `schema_files`: files to named types. `names`: Avro names to Python names.
- `annotations`: types and defaults. `encoders`: the body of an encoder.
- `module`: a whole module. `package`: the folder.
"""

from producer_sdk._generator.package import generate, stale, write
from producer_sdk._generator.schema_files import read_type_catalog

__all__ = ["generate", "read_type_catalog", "stale", "write"]
