"""SQLite files that notice changed bytes: SQLite itself has no checksums.

- `row_checksums`: every table has a column with the checksum of the row, kept by SQLite.
- `write_ahead_log`: which transactions of the file beside the store can be read.
- `commit_counter`: how many transactions a store must hold, in a file beside it.
- `sealed_pages`: the checksums of the pages of a good store, in a file beside it.
- `check`: a store is checked as a whole before it is used.
- `pages`: the rows in the bytes of a file, whatever its trees look like.
- `salvage`: a new store from the intact rows of a damaged one.

Rule: it knows no table of any part. It needs the standard library only.
"""
