"""Sequences of transfers between a device pool and a host pool, held to a dictionary of what every slot must hold."""
