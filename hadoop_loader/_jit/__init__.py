"""Compiled loops: numba, the functions that they share, and when they are worth their start-up."""
