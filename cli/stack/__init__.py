"""The servers that `headworks up` and `headworks demo` start on this machine.

- `stack`: broker, registry, console, and audit over one data folder.
- `embedded_zookeeper`: a ZooKeeper server or ensemble, from the jars that pyspark brings.
- `ports`: free ports that a server keeps across restarts.
"""
