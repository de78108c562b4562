"""Compiled loops: numba, the primitives that they share, and when they are worth their start-up."""
