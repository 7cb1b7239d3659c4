"""Find out in a container what an engine really enforces."""
