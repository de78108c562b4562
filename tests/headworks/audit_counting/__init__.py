"""Audit counting: counters in files, and the tally in both of its forms."""
