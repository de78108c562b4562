"""A guarded registry for the tests: users, grants, keys and tokens, all of them real."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headworks._server import child_process
from headworks._server.security.users import new_secret, write_users
from tests.registry.rest import Reply, Rest

ISSUER, AUDIENCE = "https://issuer.example", "registry"
PASSWORDS = {
    "root": "root's words",
    "writer": "wörds: with a colon",
    "reader": "reader's words",
    "nobody": "nobody's words",
}
GRANTS = """
[[grants]]
to = ["root", "group:keepers"]
roles = ["admin"]

[[grants]]
to = ["writer", "group:makers"]
roles = ["writer"]
prefix = "shop."
on = ["subjects"]

[[grants]]
to = ["reader"]
roles = ["reader"]
prefix = "shop."

[[grants]]
to = ["keeper"]
roles = ["admin"]
prefix = "shop."
"""


def basic(name: str, password: str | None = None) -> dict[str, str]:
    """The header that makes a request one of this user."""
    words = PASSWORDS[name] if password is None else password
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{words}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class As:
    """One user of a registry."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.rest = Rest(url)
        self.headers = headers

    def __call__(self, method: str, path: str, body: object = None, **more: Any) -> Reply:
        return self.rest(method, path, body, headers={**self.headers, **more})


def write_files(folder: Path, grants: str | None = GRANTS) -> list[str]:
    """Files of users and grants, as the options of a registry."""
    users, access = folder / "users", folder / "access.toml"
    write_users(users, {name: new_secret(words) for name, words in PASSWORDS.items()})
    options = ["--users", str(users)]
    if grants is not None:
        access.write_text(grants)
        options += ["--access", str(access)]
    return options


def start(folder: Path, *options: str, log_file: Path | None = None) -> child_process.Service:
    store = f"sqlite:///{folder / 'registry.db'}"
    arguments = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store, *options]
    return child_process.start(arguments, log_file=log_file)


class Signer:
    """One key of a provider, and the tokens signed with it."""

    def __init__(self, name: str, algorithm: str = "RS256", bits: int = 2048) -> None:
        self.name, self.algorithm = name, algorithm
        self.private: Any
        if algorithm[:2] in ("RS", "PS"):
            self.private = rsa.generate_private_key(65537, bits)
            self.jwk = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
            self.jwk = OKPAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        else:
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            self.private = ec.generate_private_key(curves[algorithm])
            self.jwk = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        self.jwk |= {"kid": name, "use": "sig"}
        self.jwk.pop("key_ops", None)

    def token(self, sub: object = "ann", *, kid: str | None = "", **claims: object) -> str:
        """A token that will do, but for the claims that are given; None leaves a claim out."""
        now = int(time.time())
        content = {"iss": ISSUER, "aud": AUDIENCE, "sub": sub, "iat": now, "exp": now + 300}
        wanted = {name: value for name, value in {**content, **claims}.items() if value is not None}
        name = self.name if kid == "" else kid
        return jwt.encode(
            wanted, self.private, self.algorithm, headers={} if name is None else {"kid": name}
        )


class Provider:
    """An HTTP server with a key set, which may be changed, and may be away."""

    def __init__(self, *signers: Signer) -> None:
        self.signers: Sequence[Signer] = signers
        self.status = 200
        self.requests = 0
        self.delay = 0.0
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def content(self) -> bytes:
        return json.dumps({"keys": [one.jwk for one in self.signers]}).encode()

    @contextmanager
    def serving(self) -> Iterator[str]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests += 1
                time.sleep(provider.delay)
                provider.may_answer.wait(60)
                content = provider.content
                self.send_response(provider.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/keys"
            finally:
                server.shutdown()
                thread.join()
