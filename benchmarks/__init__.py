"""The claims about speed and memory, a script each, measured on this machine."""
