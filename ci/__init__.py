"""The compatibility gate behind `headworks schema check`, `lint`, `diff`, and `register`.

- `catalog`: the .avsc files of one tree; `governance`: the level and policy of each subject.
- `repository`, `baselines`: the baseline of a check, from git history or a live registry.
- `gate`: the check itself, and `processes`, on all cores.
- `lint`: rules for single schemas; `rules`: the ids of both.
- `impact`, `consumers`: the impact of a change on the table and on the consumers of the topic.
- `source_map`, `locations`: from a JSON pointer to lines, and findings with their lines.
- `verdict`: the results, as frozen values; `report`, `formats`: as text, for people and for tools.
- `deploy`: the deploy step; `settings`: the gate's table in headworks.toml.

Rules: `headworks.compatibility` alone decides on a change. All results are frozen values, and only
`report` and `formats` turn them into text.
"""
