"""What passes between Envoy and the control plane, on its way to what is kept."""
