"""Clients of 2017 to 2019, for `tests.interop.test_old_clients`."""
