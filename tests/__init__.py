"""The tests, by part; `test_architecture.py` holds the rules of the house."""
