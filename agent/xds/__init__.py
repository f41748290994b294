"""The relay between Envoy and the control plane, and the built-in control plane of one pod."""
