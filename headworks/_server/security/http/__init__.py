"""Authentication over HTTP, and the permissions of a principal: shared by registry and console.

- `options`: the options of the operator, and the authenticator that they configure.
- `authenticator`: from a request's `Authorization` header to the permissions of its sender.
- `basic_passwords`: HTTP basic, against the file of users.
- `bearer_tokens`: HTTP bearer, with tokens (JWT) signed by an identity provider.
- `key_set`: the keys of that provider (JWKS), fetched and refreshed.
- `permissions`: the permissions of one principal.
- `request`: the header, and the error of authentication.
- `web_pages`: the requests that are refused because a web page may have sent them.

Rules:

- Nothing here knows a web framework or a route. An unknown principal, a missing grant, and
  credentials that cannot be checked (a broken file, a provider without an answer) are refused.
- Work that any caller can cause is bounded. Few threads derive passwords, a key set is fetched at
  most once in a few seconds, and every cache has a maximum size.
- Passwords and tokens are never stored, logged, or returned. Verified credentials are cached by a
  keyed hash.
"""
