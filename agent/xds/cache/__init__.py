"""The last known good: what Envoy has accepted, kept for a start without a control plane."""
