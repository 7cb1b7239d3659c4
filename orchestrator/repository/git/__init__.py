"""Run git, and no other module does: its settings, limits and failures."""
