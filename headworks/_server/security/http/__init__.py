"""Authentication over HTTP, and the permissions of a principal: shared by registry and console.

    options.py          what the operator configures, and the authenticator that follows from it
    authenticator.py    from a request's `Authorization` header to the permissions of its sender
    basic_passwords.py  HTTP basic, against the file of users
    bearer_tokens.py    HTTP bearer: tokens (JWT) signed with a key of an identity provider
    key_set.py          those keys (JWKS), fetched and refreshed
    permissions.py      what one principal may do
    request.py          the header, and the error of a sender who is not authenticated

Rules:

- Nothing here knows a web framework or a route. An unknown principal, a missing grant, and
  credentials that cannot be checked (a broken file, a provider without an answer) are refused.
- Work that any caller can cause is bounded. Few threads derive passwords, a key set is fetched at
  most once in a few seconds, and every cache has a maximum size.
- Passwords and tokens are never stored, logged, or returned. Verified credentials are cached by a
  keyed hash.
"""
