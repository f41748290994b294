"""A control plane for one pod: resources that are built in, or that lie in a directory."""
