"""The files of a warehouse, and the locks on it. No Spark, no Avro.

- `filesystem`: the one way to a file system, by URI: this machine, `hdfs`, or `s3`.
- `remote_path`, `webhdfs`, `object_store`: what the remote file systems share, and their protocols.
- `fsync`: files and names that survive a power cut. `staging`: files that no reader sees yet.
- `lock`, `object_lease`: one loader at a time.
- `failpoints`: steps at which tests kill the process.
"""
