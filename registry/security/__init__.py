"""Who asks the registry, and what they may do.

    passwords.py    HTTP basic, against the file of users
    keys.py         the public keys of an identity provider (JWKS), fetched and refreshed
    tokens.py       HTTP bearer: tokens (JWT) signed with one of those keys
    rules.py        the one table that says which role each route takes
    permission.py   what one principal may do
    security.py     all of it as one object: from a request's header to its permission

Rules:

- Nothing here knows the framework. Who is not known is refused, what is not granted is refused,
  and what cannot be checked (a file that does not parse, a provider that is away) admits nobody.
- What a caller can send with every request costs bounded work: a password is derived on few
  threads, a key set is fetched at most every few seconds, and every memory has a size.
- Passwords and tokens are never kept, logged or answered; what was verified is remembered by a
  keyed hash.
"""
