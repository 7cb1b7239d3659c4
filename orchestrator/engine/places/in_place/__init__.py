"""Programs inside a place with volumes: `shim.sh`, PID 1 of a step, and `porter`, which keeps it.

They import only the standard library and modules that do the same, because they run in the base
image's Python. No command of `orchestrator` starts them yet.
"""
