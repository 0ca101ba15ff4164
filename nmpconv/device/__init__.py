"""The link to a device: bytes of the protocol, lines they travel on, and what can be asked of a device."""
