"""The units, images, and compose file of deploy/."""
