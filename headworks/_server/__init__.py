"""The code that our servers share; no user's process imports it.

- `security`: users, grants, TLS, and the rule for exposed addresses.
- `checked_sqlite`: SQLite files that notice changed bytes.
- `database`: SQLite or PostgreSQL by one URL.
- `metrics_page`: Prometheus metrics over HTTP. `logs`: text or JSON logs on stderr.
- `child_process`: servers as child processes that cannot outlive their parent.
"""
