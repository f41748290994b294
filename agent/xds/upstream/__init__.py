"""Envoy served by the control plane, each stream passed on to it and back."""
