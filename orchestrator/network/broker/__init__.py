"""The credential broker of a run: a proxy that holds API keys and limits workers' model calls.

Module `server` is the proxy itself. It runs in a container of its own, together with the modules
that it imports; these modules import only the standard library, packages of the broker's image, and
each other. The host uses the modules `keys`, `grant`, `ledger` and `repositories`, which only read
and write text.
"""
