"""Health of an application outside Kubernetes: checked here, reported to the control plane."""
