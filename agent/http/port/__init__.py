"""A port on every address."""
