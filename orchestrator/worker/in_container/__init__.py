"""Programs that run inside containers; standard library only."""
