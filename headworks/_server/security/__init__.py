"""Authentication and authorization of all servers, by one file of users and one of grants.

- `users`: names and salted passwords, for SCRAM, PLAIN, and HTTP basic.
- `grants`: readers, writers, and admins of topics, subjects, and groups.
- `http`: HTTP basic and bearer tokens, and the permissions of a principal.
- `exposure`: listen addresses, and the refusal of exposed ones.
- `reloaded_file`: a file that is read again when it changes.
- `tls`: certificates.

Rules: passwords are never stored, written, or logged. A changed file is read again. A file that
cannot be read or parsed admits nobody.
"""

from headworks._server.security.exposure import parse_listen, refuse_exposure, refuse_plaintext
from headworks._server.security.grants import (
    ANONYMOUS,
    Access,
    Grant,
    Principal,
    ResourceType,
    Role,
)
from headworks._server.security.tls import server_tls
from headworks._server.security.users import Secret, Users

__all__ = [
    "ANONYMOUS",
    "Access",
    "Grant",
    "Principal",
    "ResourceType",
    "Role",
    "Secret",
    "Users",
    "parse_listen",
    "refuse_exposure",
    "refuse_plaintext",
    "server_tls",
]
