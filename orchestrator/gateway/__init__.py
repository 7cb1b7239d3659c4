"""Allow-lists, and the configurations of the gateway that confines a worker to one.

Only text is read and written here; `engine/docker` runs the programs.
"""
