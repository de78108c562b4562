"""The compatibility gate: what `headworks schema check`, `lint`, `diff` and `register` do.

- `catalogue`: the .avsc files of one tree; `governance`: what each subject is held to.
- `repository`, `bases`: what a change is held against, git history or a live registry.
- `gate`: the check itself; `lint`: what a schema should be like; `rules`: the ids of both.
- `positions`: JSON pointer to line and column.
- `report`, `machine`: the verdict for people and for tools.
- `difference`, `registering`: the semantic diff, and the deploy step.

Rules: the verdict on a change is `headworks.compatibility`'s alone; whoever asks gets frozen
values, and only `report` and `machine` make text of them.
"""
