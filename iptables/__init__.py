"""Traffic capture: what the flags mean, the rules they yield, and how those reach the kernel."""
