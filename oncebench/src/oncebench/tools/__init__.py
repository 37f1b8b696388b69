"""The tools that subjects protect: real functions of real modules, as a user's are."""
