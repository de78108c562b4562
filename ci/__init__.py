"""The compatibility gate: what `headworks schema check`, `lint`, `diff` and `register` do.

- `catalogue`: the .avsc files of one tree; `governance`: what each subject is held to.
- `repository`, `bases`: what a change is held against, git history or a live registry.
- `gate`: the check itself; `lint`: what a schema should be like; `rules`: the ids of both.
- `impact`, `consumers`: what a change leads to, the table's DDL and the topic's readers.
- `positions`, `placing`: JSON pointer to line and column, findings to their lines.
- `verdict`: the answer, as frozen values; `report`, `machine`: as text, for people and for tools.
- `registering`: the deploy step; `settings`: the gate's table in headworks.toml.

Rules: the verdict on a change is `headworks.compatibility`'s alone; whoever asks gets frozen
values, and only `report` and `machine` make text of them.
"""
