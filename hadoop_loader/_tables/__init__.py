"""Tables of the warehouse: from Avro types to columns, DDL, and views. No Spark session here.

- `columns`: the one mapping from Avro types to column types; `arrow_types` follows from it.
- `widening`: how columns evolve. `views`: the SQL that shows every row in the latest schema.
- `defaults`, `sql_literals`: Avro defaults as values of a column, and as SQL.
- `hive_catalog`: the Hive metastore, through the Spark session that its caller passes.
"""
