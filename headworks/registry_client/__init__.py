"""The client of a schema registry (ours, or any that speaks Confluent's REST interface).

- `client`: RegistryClient, what everything else uses.
- `answers`: the frozen values it returns, and the refusal of an incompatible schema.
- `credentials`: who to be.
- `transport`: one HTTP request with bounded retries; errors become the project's own.
"""

from headworks.registry_client._answers import (
    Compatibility,
    CompatibilityGroup,
    IncompatibleSchemaError,
    Reference,
    Registered,
    SubjectVersion,
)
from headworks.registry_client._client import RegistryClient

__all__ = [
    "Compatibility",
    "CompatibilityGroup",
    "IncompatibleSchemaError",
    "Reference",
    "Registered",
    "RegistryClient",
    "SubjectVersion",
]
