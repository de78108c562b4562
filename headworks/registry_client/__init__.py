"""The client of a schema registry (ours, or any that speaks Confluent's REST interface).

- `_client`: RegistryClient, which everything else uses.
- `_answers`: the frozen values that it returns, and the error of an incompatible schema.
- `_credentials`: the user or the token of a client.
- `_transport`: one HTTP request with bounded retries; its errors are Headworks' own.
"""

from headworks.registry_client._answers import (
    SCHEMA_NOT_FOUND,
    Compatibility,
    CompatibilityGroup,
    IncompatibleSchemaError,
    Reference,
    Registered,
    SubjectVersion,
)
from headworks.registry_client._client import RegistryClient

__all__ = [
    "SCHEMA_NOT_FOUND",
    "Compatibility",
    "CompatibilityGroup",
    "IncompatibleSchemaError",
    "Reference",
    "Registered",
    "RegistryClient",
    "SubjectVersion",
]
