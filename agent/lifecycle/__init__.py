"""How Envoy lives and dies: started behind a gate, watched, drained, asked to stop, reaped."""
