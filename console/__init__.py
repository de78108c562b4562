"""The web console: schema, stream, audit and warehouse of a Headworks installation on one address.

Rules: it reads and never changes anything; it asks the other parts through their public reading
functions and keeps no state of its own that could disagree with theirs; what it shows came from
outside (docs, messages, names) and is escaped.
"""
