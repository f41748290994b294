"""Connections that are kept for the next request to the same place."""
