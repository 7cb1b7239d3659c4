"""Tables, live views and messages."""
