"""The commit protocol: what a load changes, recorded once, applied as often as needed.

- `transaction`: the protocol as steps: recover, plan, stage, commit, apply, publish, clean.
- `commit_log`: numbered records, the only home of offsets; `commit_record`, `text_store`, and
  `retired_files` are its parts. `commit_builder`: the next record.
- `roll_forward`: everything after the commit.
- `topic_plans`: which topics take part, with which schemas. `policy`: the operator's choices.
- `task_results`: the results of all tasks, checked against the plan. `report`: what a load did.
"""
