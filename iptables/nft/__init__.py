"""The plan as native nftables: its text, what is installed of it, and how that is changed."""
