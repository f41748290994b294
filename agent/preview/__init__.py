"""What Envoy would start from in this pod: printed, and checked by Envoy, with nothing started."""
