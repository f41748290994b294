"""The agent: the long-running process of a pod, and the small commands its hooks run."""
