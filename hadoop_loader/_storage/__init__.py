"""The files of a warehouse, and the locks on it. No Spark, no Avro.

- `filesystem`: every file access by URI: this machine, `hdfs`, or `s3`.
- `remote_path`, `webhdfs`, `object_store`: the remote file systems and their protocols.
- `fsync`: files and names that survive a power cut. `staging`: files that no reader sees yet.
- `lock`, `object_lease`: one loader at a time.
- `failpoints`: steps at which tests kill the process.
"""
