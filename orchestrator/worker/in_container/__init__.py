"""Programs that run inside containers: `pack_work` and its modules, and `pip_wheels`.

They import only the standard library and each other.
"""
