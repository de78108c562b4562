"""Long proofs of the broker: kills, power cuts, fuzzing. `python -m tests.soak --help`.

The suite runs the same code for seconds (tests/broker/test_kills.py, test_fuzz.py and others);
docs/proofs.md says what is proven and what a long run found.
"""
