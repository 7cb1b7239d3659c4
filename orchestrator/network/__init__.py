"""What may leave a worker, and with which keys: gateways and the credential broker."""
