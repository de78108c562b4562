"""The registry's values and decisions: no I/O, no clock, nothing of HTTP or SQL."""
