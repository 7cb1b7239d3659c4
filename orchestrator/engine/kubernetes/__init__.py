"""Workers in pods of a Kubernetes cluster.

The official client reads the configuration and the credentials; requests and answers are plain
dictionaries. Nothing reaches these modules from the command line yet.
"""
