"""The command line, and the stack that `headworks up` and `headworks demo` start.

Rules: this part may import every other, none imports it; a command imports what it runs inside
its function, so that `headworks --help` stays fast; data goes to stdout, talk to stderr.
"""
