"""Print tables, live views and messages."""
