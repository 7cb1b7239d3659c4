"""Allow-lists of hosts, and the configuration of the gateways that enforce them.

Modules of this package only read and write text; the package `engine/docker` runs the programs.
"""
