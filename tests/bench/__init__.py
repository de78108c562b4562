"""Tests of the benchmarks' frame."""
