"""What this process is doing and what it holds, for whoever debugs it."""
