"""A pytest plugin and hardware test matrix for code that runs SGLang's KV-cache kernels."""
