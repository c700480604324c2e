"""Score one untrusted program against inputs, without knowing why it is scored.

`sandbox.base` holds the contract, `sandbox.docker` the default backend, `sandbox.judge` the comparison with expected
values, which happens on the host. Nothing here knows of evolution, models or databases.
"""
