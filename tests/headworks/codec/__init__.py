"""The encoders of generated classes."""
