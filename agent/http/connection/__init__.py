"""A connection of an outgoing request: addresses, sockets, and what is spoken."""
