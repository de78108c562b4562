"""The tasks of a load, run in the driver or in a Spark worker. No Spark session here.

- `load_task`: fetch, decode, write files, count. `rewrite_task`: rewrite one partition's files.
- `conform`: rows of an older file in the columns of today. `progress`: how far the tasks are.
"""
