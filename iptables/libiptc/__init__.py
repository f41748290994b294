"""The legacy tables without iptables' programs: read and changed through python-iptables."""
