"""The servers that `headworks up` and `headworks demo` start on this machine.

- `stack`: broker, registry, console, and audit over one data folder.
- `embedded_zookeeper`: a ZooKeeper server, from the jars that pyspark brings.
- `metrics_addresses`: where the metrics of all servers are.
- `ports`: free ports that a server keeps across restarts.
"""
