"""The admission webhook: the API server asks it about each pod that is created."""
