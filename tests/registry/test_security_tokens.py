"""Bearer tokens, checked with the keys of a provider that runs, rotates its keys and goes away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import jwt
import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headworks._server import child_process
from headworks._server.security import Principal
from headworks._server.security.http import key_set as key_sets
from headworks._server.security.http.bearer_tokens import TokenError, TokenRules, TokenVerifier
from headworks._server.security.http.key_set import (
    KeySet,
    KeysUnavailableError,
    UnknownKeyError,
    read_keys,
)
from tests.registry.guarding import (
    AUDIENCE,
    GRANTS,
    ISSUER,
    As,
    Provider,
    Signer,
    basic,
    bearer,
    start,
    write_files,
)
from tests.registry.rest import Reply, record, text_of
from tests.waiting import until

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))
OPTIONS = ["--issuer", ISSUER, "--audience", AUDIENCE]


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer("one")


@pytest.fixture(scope="module")
def provider(signer: Signer) -> Provider:
    return Provider(signer)


@pytest.fixture(scope="module")
def guarded(
    signer: Signer, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    folder = tmp_path_factory.mktemp("tokens")
    files = write_files(folder, GRANTS)
    with (
        provider.serving() as url,
        start(folder, *files, "--jwks", url, *OPTIONS) as running,
    ):
        # A provider that is slow to answer, as on a busy machine, is one that is away.
        ann = As(running.url, bearer(signer.token("ann")))
        until(lambda: ann("GET", "/subjects").status != 503)
        yield running


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are asked for in this process have the time that they need."""
    monkeypatch.setattr(key_sets, "_TIMEOUT_SECONDS", 60.0)


def test_groups_give_roles(guarded: child_process.Service, signer: Signer) -> None:
    keeper = As(guarded.url, bearer(signer.token("kim", groups=["keepers"])))
    maker = As(guarded.url, bearer(signer.token("max", groups=["x", "makers"])))
    nobody = As(guarded.url, bearer(signer.token("ned", groups="other")))
    assert maker("POST", "/subjects/shop.t/versions", {"schema": V1}).status == 200
    assert maker("POST", "/subjects/pay.t/versions", {"schema": V1}).code == 40301
    assert nobody("GET", "/subjects").code == 40301
    assert keeper("GET", "/audit").body[0]["who"] == "max@127.0.0.1"
    assert As(guarded.url, basic("root"))("GET", "/subjects").status == 200
    assert maker("GET", "/schemas/ids/1").status == 200
    assert maker("GET", "/schemas/ids/1").status == 200
    assert nobody("GET", "/schemas/ids/1").code == 40301


def unsigned(claims: dict[str, object]) -> str:
    return jwt.encode(claims, "", "none")


def when_keys_are_there(one: As) -> Reply:
    """The answer of a server that has heard from its provider, however long that takes."""
    replies: list[Reply] = []

    def answered() -> bool:
        replies.append(one("GET", "/subjects"))
        return replies[-1].status != 503

    until(answered)
    return replies[-1]


def test_tokens_that_will_not_do(guarded: child_process.Service, signer: Signer) -> None:
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "kim", "exp": now + 300, "groups": ["keepers"]}
    other = Signer("one")
    public = json.dumps(signer.jwk)
    # The oldest trick: the public key, which all know, as the secret of a symmetric signature.
    confused = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
    body = base64.urlsafe_b64encode(json.dumps(good).encode()).rstrip(b"=").decode()
    mac = hmac.digest(public.encode(), f"{confused}.{body}".encode(), hashlib.sha256)
    forged = f"{confused}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    wrong = {
        "expired": signer.token("kim", exp=now - 60),
        "not valid yet": signer.token("kim", nbf=now + 120),
        "another audience": signer.token("kim", aud="another"),
        "another issuer": signer.token("kim", iss="https://evil.example"),
        "signature": other.token("kim"),
        "does not have": signer.token("kim", kid="two"),
        "`exp` is missing": signer.token("kim", exp=None),
        "`aud` is missing": signer.token("kim", aud=None),
        "`iss` is missing": signer.token("kim", iss=None),
        "`sub` is not a name": signer.token(None),
        "'*', which is not allowed": signer.token("*"),
        "'anonymous', which": signer.token("anonymous"),
        "'group:keepers', which": signer.token("group:keepers"),
        "which is not allowed as a name": signer.token("two\nlines"),
        "its algorithm": forged,
        "not a signed token": "a.b.c",
        "too long": "x" * 20_000,
    }
    for words, token in wrong.items():
        reply = when_keys_are_there(As(guarded.url, bearer(token)))
        assert (reply.status, reply.code) == (401, 401), words
        assert words in reply.body["message"]
    assert As(guarded.url, bearer(unsigned(good)))("GET", "/subjects").status == 401
    # A clock that is some seconds off is forgiven.
    just = int(time.time()) - 5
    late = As(guarded.url, bearer(signer.token("kim", exp=just, groups=["keepers"])))
    assert late("GET", "/subjects").status == 200


def test_a_remembered_token_still_expires(guarded: child_process.Service, signer: Signer) -> None:
    for left in (2, 10, 30):  # on a machine that stands still, the first may be over too soon
        token = signer.token("kim", exp=int(time.time()) - 30 + left, groups=["keepers"])
        kim = As(guarded.url, bearer(token))
        if kim("GET", "/subjects").status == 200:
            break
    assert kim("GET", "/schemas/types").status == 200, "it is remembered"
    until(lambda: kim("GET", "/subjects").status == 401)


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"])
def test_every_kind_of_key(tmp_path: Path, algorithm: str) -> None:
    signer = Signer("k", algorithm)
    path = tmp_path / "keys.json"
    path.write_bytes(Provider(signer).content)

    async def check() -> Principal:
        keys = KeySet(path.as_uri())
        return await TokenVerifier(keys, TokenRules(ISSUER, AUDIENCE)).verify(
            b"m", signer.token("ann")
        )

    assert asyncio.run(check()) == Principal("ann")


def test_a_token_without_a_key_id_means_the_only_key(tmp_path: Path) -> None:
    one, two = Signer("a", "ES256"), Signer("b", "ES256")
    path = tmp_path / "keys.json"

    async def check(*signers: Signer) -> Principal:
        path.write_bytes(Provider(*signers).content)
        tokens = TokenVerifier(KeySet(path.as_uri()), TokenRules(ISSUER, AUDIENCE))
        return await tokens.verify(b"m", one.token("ann", kid=None))

    assert asyncio.run(check(one)) == Principal("ann")
    with pytest.raises(TokenError, match="does not have"):
        asyncio.run(check(one, two))


def test_other_claims(tmp_path: Path) -> None:
    signer = Signer("k", "ES256")
    path = tmp_path / "keys.json"
    path.write_bytes(Provider(signer).content)
    token = signer.token(email="ann@x", realm_access={"roles": ["a", 3, "b"]})

    async def check(rules: TokenRules) -> Principal:
        return await TokenVerifier(KeySet(path.as_uri()), rules).verify(b"m", token)

    rules = TokenRules(ISSUER, AUDIENCE, "email", "realm_access.roles")
    assert asyncio.run(check(rules)) == Principal("ann@x", ("a", "b"))
    with pytest.raises(TokenError, match=r"`realm_access\.roles` is not a name"):
        asyncio.run(check(TokenRules(ISSUER, AUDIENCE, "realm_access.roles")))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def with_keys(
    provider: Provider,
    test: Callable[[KeySet, Clock, Callable[[Signer], Awaitable[bool]]], Awaitable[None]],
) -> None:
    async def run(url: str) -> None:
        clock = Clock()
        keys = KeySet(url, clock=clock)

        async def finds(signer: Signer) -> bool:
            try:
                return (await keys.find(signer.name)).name == signer.name
            except UnknownKeyError:
                return False

        await test(keys, clock, finds)

    with provider.serving() as url:
        asyncio.run(run(url))


def test_keys_rotate() -> None:
    old, new = Signer("old", "ES256"), Signer("new", "ES256")
    provider = Provider(old)

    async def rotate(
        keys: KeySet, clock: Clock, finds: Callable[[Signer], Awaitable[bool]]
    ) -> None:
        assert await finds(old)
        before = keys.generation
        clock.now += key_sets.COOLDOWN_SECONDS
        provider.signers = [old, new]
        assert await finds(new), "an unknown key is asked for"
        assert keys.generation > before
        clock.now += key_sets.COOLDOWN_SECONDS
        provider.signers = [new]
        assert await finds(old), "known keys are kept for a while"
        clock.now += key_sets.FRESH_SECONDS
        assert not await finds(old), "and then forgotten with the provider"
        assert await finds(new)

    with_keys(provider, rotate)


def test_unknown_keys_are_asked_for_rarely() -> None:
    provider = Provider(Signer("a", "ES256"))
    provider.delay = 0.05
    strange = Signer("strange", "ES256")

    async def storm(keys: KeySet, clock: Clock, finds: Callable[[Signer], Awaitable[bool]]) -> None:
        assert not any(await asyncio.gather(*(finds(strange) for _ in range(200))))
        assert provider.requests == 1
        clock.now += key_sets.COOLDOWN_SECONDS
        assert not any(await asyncio.gather(*(finds(strange) for _ in range(200))))
        assert provider.requests == 2

    with_keys(provider, storm)


def test_an_unreachable_provider_admits_no_new_token() -> None:
    known = Signer("known", "ES256")
    provider = Provider(known)

    async def go_away(
        keys: KeySet, clock: Clock, finds: Callable[[Signer], Awaitable[bool]]
    ) -> None:
        provider.status = 500
        with pytest.raises(KeysUnavailableError):
            await finds(known)
        clock.now += key_sets.COOLDOWN_SECONDS
        provider.status = 200
        assert await finds(known)
        provider.status = 500
        clock.now += key_sets.FRESH_SECONDS
        assert await finds(known), "what is known stays trusted for a while"
        with pytest.raises(KeysUnavailableError):
            await keys.find("unknown")
        clock.now += key_sets.TRUSTED_SECONDS
        with pytest.raises(KeysUnavailableError):
            await finds(known)

    with_keys(provider, go_away)


def test_a_fetch_does_not_stop_the_loop() -> None:
    provider = Provider(Signer("a", "ES256"))
    provider.may_answer.clear()

    async def beat(keys: KeySet, clock: Clock, finds: Callable[[Signer], Awaitable[bool]]) -> None:
        fetching = asyncio.create_task(keys.find("a"))
        while not provider.requests:
            await asyncio.sleep(0.01)
        assert not fetching.done()
        provider.may_answer.set()
        assert (await fetching).name == "a"

    with_keys(provider, beat)


def test_a_server_without_its_provider_says_503(tmp_path: Path) -> None:
    signer = Signer("k", "ES256")
    options = ["--jwks", "http://127.0.0.1:1/keys", *OPTIONS]
    with start(tmp_path, *options) as running:
        reply = As(running.url, bearer(signer.token("ann")))("GET", "/subjects")
        assert (reply.status, reply.code) == (503, 503)
        assert "keys" in reply.body["message"]
        assert As(running.url, {})("GET", "/subjects").status == 401
        assert As(running.url, {})("GET", "/health/ready").status == 200


def test_keys_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    signer = Signer("k", "ES256")
    content = Provider(signer).content

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        source = f"https://127.0.0.1:{server.server_port}/"
        try:
            found = asyncio.run(KeySet(source, ca=tmp_path / "ca.pem").find("k"))
            assert found.name == "k"
            with pytest.raises(KeysUnavailableError):
                asyncio.run(KeySet(source).find("k"))
        finally:
            server.shutdown()
            thread.join()


def test_what_is_no_key() -> None:
    rsa, curve = Signer("r").jwk, Signer("c", "ES256")
    symmetric = {"kty": "oct", "kid": "s", "k": "AAAA"}
    encrypting = {**curve.jwk, "use": "enc"}
    private = {**curve.jwk, "d": "AAAA"}
    symmetrically = {**rsa, "alg": "HS256"}
    kept = read_keys(
        {"keys": [rsa, symmetric, encrypting, private, symmetrically, 3, {"kty": "RSA"}]}
    )
    assert [one.name for one in kept] == ["r"]
    assert "HS256" not in kept[0].algorithms
    assert read_keys({"keys": [{**rsa, "alg": "PS256"}]})[0].algorithms == ("PS256",)
    empty: tuple[object, ...] = ({"keys": [symmetric]}, {"keys": []}, {"keys": 3}, [], None, {})
    for nothing in empty:
        with pytest.raises(ValueError, match="it "):
            read_keys(nothing)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
members = st.dictionaries(
    st.sampled_from(["kty", "crv", "x", "y", "n", "e", "kid", "alg", "use"]),
    st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "ES256", "sig"]) | json_values,
)


@settings(max_examples=300, deadline=None)
@given(json_values | st.fixed_dictionaries({"keys": st.lists(members | json_values, max_size=3)}))
def test_a_strange_key_set_is_a_value_error(content: object) -> None:
    try:
        kept = read_keys(content)
    except ValueError:
        return
    assert kept
    assert all(key.algorithms for key in kept)


CURVED = Signer("k", "ES256")
claims = st.dictionaries(
    st.sampled_from(["sub", "groups", "nbf", "iat", "exp", "aud", "iss", "jti"]),
    json_values | st.floats() | st.sampled_from([ISSUER, AUDIENCE, [AUDIENCE], 2**70, "1e400"]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=claims)
def test_strange_claims_of_the_right_issuer(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "keys.json"
    path.write_bytes(Provider(CURVED).content)
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 300, **content}
    token = jwt.api_jws.encode(
        json.dumps(whole).encode(), CURVED.private, "ES256", headers={"kid": "k"}
    )

    async def check() -> Principal:
        return await TokenVerifier(KeySet(path.as_uri()), TokenRules(ISSUER, AUDIENCE)).verify(
            b"m", token
        )

    try:
        assert asyncio.run(check()).name == whole["sub"]
    except TokenError:
        return


headers = st.one_of(
    st.binary(max_size=60),
    st.tuples(
        st.sampled_from([b"Basic ", b"bearer ", b"BEARER  ", b"Negotiate "]), st.binary(max_size=60)
    ).map(b"".join),
    st.tuples(st.just(b"Basic "), st.binary(max_size=20).map(base64.b64encode)).map(b"".join),
    st.lists(st.binary(max_size=20).map(base64.urlsafe_b64encode), min_size=2, max_size=4).map(
        lambda parts: b"Bearer " + b".".join(parts)
    ),
    st.just(b"Bearer " + base64.urlsafe_b64encode(b"[" * 9000) + b".a.b"),
)


@settings(max_examples=200, deadline=None)
@given(header=headers)
def test_no_header_admits_anybody_or_breaks_anything(
    guarded: child_process.Service, header: bytes
) -> None:
    plain = bytes(byte for byte in header if byte >= 32 and byte != 127)
    text = plain.decode("latin-1").strip()
    reply = As(guarded.url, {"Authorization": text})("GET", "/subjects")
    assert reply.status in (401, 429)


def test_short_keys_are_refused(tmp_path: Path) -> None:
    signer = Signer("k", bits=1024)
    path = tmp_path / "keys.json"
    path.write_bytes(Provider(signer).content)
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = signer.token("ann")

    async def check() -> None:
        await TokenVerifier(KeySet(path.as_uri()), TokenRules(ISSUER, AUDIENCE)).verify(b"m", token)

    with pytest.raises(TokenError):
        asyncio.run(check())
