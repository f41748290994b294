"""CNI mode: the tools run where the node's files cannot mislead them."""
