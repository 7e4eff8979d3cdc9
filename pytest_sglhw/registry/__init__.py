"""Tables of data: platforms, capabilities and kernel providers, and the registry that holds those of one run."""
