"""Remove, back up, restore and recover what runs left behind."""
