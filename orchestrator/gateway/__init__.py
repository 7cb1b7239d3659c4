"""Allow-lists of hosts, and the configuration of the gateway that enforces them.

Only text is read and written here; `engine/docker` runs the programs.
"""
