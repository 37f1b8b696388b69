"""The protocol, pure: frozen values in and out. Reads no clock, file, socket or random source."""
