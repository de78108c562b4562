"""The commit protocol: what a load changes, recorded once, applied as often as needed.

- `commit_log`: numbered records, the only home of offsets. `commit_builder`: the next one.
- `transaction`: recover, stage, commit, apply. `roll_forward`: everything after the commit.
- `topic_plans`: which topics take part, by which schemas. `policy`: how the operator wants it.
- `task_results`: the results of all tasks, checked against the plan. `report`: what a load did.
"""
