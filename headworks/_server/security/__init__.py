"""Who may connect and what they may do: one file of users and one of grants for every server.

    users.py     names and salted passwords: what SCRAM, PLAIN and HTTP basic check against
    access.py    grants: who is reader, writer or admin of which topics, subjects and groups
    exposure.py  addresses to listen on, and when one beyond this machine is refused
    tls.py       certificates

Rules: passwords are never kept, written or logged; a file that changes is reread, and one that
cannot be read or understood never admits anybody.
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
