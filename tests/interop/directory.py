"""An LDAP directory with two users: UnboundID's server in memory, fetched by Maven.

Rule: it has no TLS, and ends with the process that started it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from headworks._cli.stack.ports import free_ports
from tests.interop import maven
from tests.outgrown.servers import Server, listens

USERS = {"ada": "engine-no-2", "bob": "tables-please"}  # and their passwords
PEOPLE = "ou=people,dc=example,dc=com"
_POM = Path(__file__).with_name("ldap.xml")
_MAIN = "com.unboundid.ldap.listener.InMemoryDirectoryServerTool"
_ROOT = """\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people
"""
_PERSON = """
dn: uid={name},ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: {name}
cn: {name}
sn: {name}
userPassword: {password}
"""


@contextmanager
def running_directory(folder: Path) -> Iterator[tuple[Server, str]]:
    """Yield the server, which a test may kill and launch again, and its URL."""
    (port,) = free_ports(1)
    people = folder / "people.ldif"
    people.write_text(
        _ROOT + "".join(_PERSON.format(name=name, password=word) for name, word in USERS.items()),
        encoding="utf-8",
    )
    jars = maven.fetch(_POM, "ldap", "an LDAP directory")
    classpath = os.pathsep.join(map(str, jars))
    options = ("--baseDN", "dc=example,dc=com", "--ldifFile", str(people), "--port", str(port))
    command = ["java", "-Xmx128m", "-cp", classpath, _MAIN, *options]
    server = Server("directory", command, folder / "directory.log", partial(listens, port))
    try:
        server.launch()
        server.wait()
        yield server, f"ldap://127.0.0.1:{port}"
    finally:
        server.kill()
