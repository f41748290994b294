"""Validation: real connections from inside the pod prove that its traffic is captured."""
