"""The registry's own permission rules; authentication is `headworks._server.security.http`.

- `route_rules`: the one table of the roles that routes require.
- `enforcement`: the refusals (401, 403) that follow from the table and the grants.

Rule: nothing here knows the web framework. A route without a rule and a principal without a grant
are refused.
"""
