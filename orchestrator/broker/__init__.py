"""The credential broker of a run: what workers may call, and the program that holds the keys.

`server` is that program. It runs in a container of its own, with the modules that it imports; these
import only the standard library, packages of the broker's image, and each other. Only text is read
and written in `keys`, `grant` and `ledger`, which the host uses.
"""
