"""The claims about speed and memory, one script each, measured on this machine."""
