"""Sees a change through though the command that began it is killed."""
