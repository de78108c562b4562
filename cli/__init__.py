"""The command line, and the stack that `headworks up` and `headworks demo` start.

Rules: this part may import every other part, and no part imports it. A command imports what it runs
inside its function, so that `headworks --help` stays fast. Data goes to stdout, status to stderr.
"""
