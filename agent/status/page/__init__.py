"""The page for people at / of the status port, and the document that it polls."""
