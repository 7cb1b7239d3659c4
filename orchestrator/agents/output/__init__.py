"""Read what agent programs print: reports, refusals, limits."""
