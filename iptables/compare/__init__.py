"""What would change: the difference between the rules that are installed and the plan."""
