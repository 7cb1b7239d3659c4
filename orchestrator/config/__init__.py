"""Every setting: its model, its default, and where its value came from."""
