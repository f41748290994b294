"""What secures a connection to the control plane or the CA: roots, client certificate, token."""
