"""Kill any agent at every system call, lose every answer, and count the effects."""

__version__ = "0.1.0"
