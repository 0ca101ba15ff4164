"""The link to a device: bytes of the protocol, lines they travel on, and what can be asked of a device."""

REOPEN_SECONDS = 10.0  # that a line which is gone is waited for
