"""What every engine implements, and the data that it takes and returns."""
