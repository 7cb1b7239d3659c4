"""What may enter the repository: packs of workers, checked in a quarantine."""
