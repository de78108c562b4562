"""What our servers share."""
