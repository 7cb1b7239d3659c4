"""One model of a run from its files and events: what every list, table, page and report shows."""
