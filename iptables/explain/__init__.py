"""What happens to a packet: its way through the rules planned or installed, and its fate."""
