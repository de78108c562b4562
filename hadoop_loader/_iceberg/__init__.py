"""Each commit as a snapshot of Iceberg tables over the same files, if a catalog is configured.

Rule: the commit log stays the one commit. Everything here follows from it, and can be repeated.
"""
