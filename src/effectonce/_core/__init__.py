"""The protocol, pure: frozen values in, frozen values out. Nothing here reads a clock, a file, a
socket or a random source.
"""
