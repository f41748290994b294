"""agent xds: asks the control plane what it has for this pod, and the agent what became of it."""
