"""A way into a pod from outside of it."""
