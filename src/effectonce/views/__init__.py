"""What people are shown about effects, on a terminal and in a browser alike: data, and sentences
about it. Nothing is changed here.
"""
