"""Families of kernels: one module each, with a table ``KERNELS``."""
