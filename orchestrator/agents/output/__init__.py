"""Parse the output of agent programs: reports, errors, limits."""
