"""Whose SDS servers listen in this pod: somebody else's, or ours."""
